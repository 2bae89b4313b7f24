"""Comparison of many nodes or reports: the speeds of good nodes, and the outliers. The package does no I/O."""
