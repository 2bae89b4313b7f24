"""The nouns of preflight: frozen records without I/O and without a clock."""
