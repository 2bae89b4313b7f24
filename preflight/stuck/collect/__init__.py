"""Evidence of one node: each kind by itself, side by side, within its own limit."""
