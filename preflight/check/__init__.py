"""`preflight check` from top to bottom: the request, the phases, the report."""
