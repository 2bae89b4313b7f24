"""Checks of what a run showed: its trials, the tests below NCCL, its nodes beside each other. `probe` needs none."""
