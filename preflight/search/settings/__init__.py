"""The settings of a job's communication: candidates, conservative settings, and the search among them."""
