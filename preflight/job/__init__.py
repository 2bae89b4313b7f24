"""The implementation of `preflight run`, which runs a job with a check before and an explanation after a failure.

This package imports little, because it stays in memory during the job.
"""
