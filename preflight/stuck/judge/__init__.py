"""The evaluation of the evidence, which gives the verdict and the culprits, without I/O and without a clock."""
