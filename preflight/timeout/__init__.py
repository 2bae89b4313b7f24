"""The safe timeout of a job, and whether the job fits into memory: the time budget, texts and variables."""
