"""The safe timeout of a job, and whether the job fits into memory: components, sum, texts and variables."""
