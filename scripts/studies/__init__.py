"""Seeded studies of preflight's numbers: `python -m scripts.studies NAME [--small]`; tests run each one small."""
