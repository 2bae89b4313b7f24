"""Run one configuration on all ranks: the launcher of the ranks, and in rank/ the code that runs inside the ranks."""
