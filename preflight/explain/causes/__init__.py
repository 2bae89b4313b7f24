"""One cause per file, each exporting CAUSE; `preflight.explain.cause.all_causes` finds these files."""
