"""Evidence of one node: each kind alone, side by side, within its own limit."""
