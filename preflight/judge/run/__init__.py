"""Checks of a run's results: its trials, the GPU tests, and its nodes compared.

`preflight probe` runs none of these checks.
"""
