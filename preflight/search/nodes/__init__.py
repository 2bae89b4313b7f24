"""Plan the test runs that span several nodes, and find the faulty node."""
