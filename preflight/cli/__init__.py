"""The command line: `program` has the table of the commands and the modules that contain them."""

from preflight.cli.program import main

__all__ = ["main"]
