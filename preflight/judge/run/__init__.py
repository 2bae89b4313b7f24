"""Checks of a run's results: its trials, the tests below NCCL, and its nodes compared. `probe` needs none of them."""
