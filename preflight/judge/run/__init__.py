"""Checks of what a run showed: its trials, the tests below NCCL, its nodes compared. `probe` needs none."""
