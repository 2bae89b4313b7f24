"""The rendezvous of several nodes: node 0 leads, the others follow; their questions, and the relay between them."""
