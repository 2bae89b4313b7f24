"""Evidence from one node: each kind is read separately, in parallel, within its own limit."""
