"""All access to the operating system. Reads of the machine go through this package and can be recorded."""
