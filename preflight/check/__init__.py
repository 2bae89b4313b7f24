"""`preflight check` from top to bottom: what is asked, the phases, the report."""
