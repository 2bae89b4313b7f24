"""The safe timeout of a job, and whether the job fits into memory: the terms, the sum, the words and the variables."""
