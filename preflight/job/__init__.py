"""`preflight run`: a job between a check and its explanation. Light imports only: it stays while the job runs."""
