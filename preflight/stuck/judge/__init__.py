"""The evaluation of the evidence: whether a job is stuck, and why. The functions do no I/O."""
