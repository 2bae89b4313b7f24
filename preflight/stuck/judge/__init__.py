"""From evidence to the answer: no I/O, no clock."""
