"""Plan the test runs on several nodes together, and find the faulty node."""
