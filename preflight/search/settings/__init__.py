"""The settings of a job's communication: configurations to try, conservative settings, and the search among them."""
