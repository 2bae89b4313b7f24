"""The step from evidence to the answer, without I/O and without a clock."""
