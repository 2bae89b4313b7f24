"""One candidate tried by all ranks, seen from both ends: the launcher of the ranks, and in rank/ the ranks."""
