"""The plan of the trials on several nodes together, and the search for a node at fault."""
