"""`preflight run`: runs a job, with a check before it and an explanation after a failure.

This package imports little, because it stays in memory during the job.
"""
