"""Compute the safe timeout of a job, and whether the job fits into memory."""
