"""Reading facts from a machine: one file per subsystem, with a reader at the top and pure parsers below."""
