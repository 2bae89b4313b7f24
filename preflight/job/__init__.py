"""`preflight run`: a job between a check and its explanation. It imports little, because it stays in memory."""
