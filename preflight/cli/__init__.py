"""The command line: `program` has the table of the commands and the files that hold them."""

from preflight.cli.program import main

__all__ = ["main"]
