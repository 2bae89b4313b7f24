"""What several nodes try together, and how the one at fault is found."""
