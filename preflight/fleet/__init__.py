"""Comparison of many nodes or reports: the speeds of good nodes, and the outliers. It does no I/O."""
