"""The possible causes of a failure, one per file.

Each file exports CAUSE. `preflight.explain.cause.all_causes` finds the files.
"""
