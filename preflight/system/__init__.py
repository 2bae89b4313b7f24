"""The only door to the operating system: every read of the machine goes through here, and can be recorded."""
