"""The only access to the operating system: every read of the machine goes through this package, and can be recorded."""
