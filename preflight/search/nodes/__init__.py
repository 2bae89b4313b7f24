"""The joint trials of several nodes, and how the node at fault is found."""
