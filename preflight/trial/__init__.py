"""One candidate tried by all ranks, from both ends: the launcher of the ranks, and in rank/ the ranks."""
