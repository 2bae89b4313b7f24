"""Run one configuration on all ranks, from both sides: the ranks' launcher, and in rank/ the ranks' own code."""
