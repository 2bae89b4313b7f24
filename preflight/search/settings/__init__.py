"""What a job's communication can be set to: candidates, conservative settings, and the search among them."""
