"""Where several nodes meet: node 0 leads, the others follow; what they ask each other, and the relay between them."""
