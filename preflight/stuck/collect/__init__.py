"""Readers of data on a hanging job. The readers run in parallel, and each reader has its own time limit."""
