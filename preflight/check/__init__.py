"""`preflight check`: the request, the phases of the run, the report."""
