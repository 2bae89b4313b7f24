"""From a machine to facts: one file per subsystem, a reader on top and pure parsers below."""
