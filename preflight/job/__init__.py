"""`preflight run`: a job between a check and its explanation.

This package imports little, because it stays in memory during the job.
"""
