"""The data types of preflight: frozen records that do no I/O and read no clock."""
