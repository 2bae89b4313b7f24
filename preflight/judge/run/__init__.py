"""Checks of a run's results: its trials, the GPU tests, and its nodes compared. `probe` needs none of them."""
