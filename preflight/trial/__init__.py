"""Run one configuration on all ranks, from both sides: the launcher of the ranks, and in rank/ the ranks."""
