"""Compare many nodes or reports to find the speeds of good nodes and the outliers. The package does no I/O."""
