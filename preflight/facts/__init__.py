"""Read values from a machine. Each subsystem has one module, with a reader at the top and parsers below."""
