"""Read facts from a machine. There is one file per subsystem, with a reader at the top and pure parsers below it."""
