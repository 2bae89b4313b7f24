"""Checks of a run's results, of its GPU tests, and of the differences between its nodes.

`preflight probe` does not run these checks.
"""
