"""The command line: one file per command, in the order of --help; importing one registers it with the program."""

from preflight.cli import check, probe, explain, timeout, bench, render, fleet, baseline, checks, schema  # noqa: F401, I001
from preflight.cli.program import main

__all__ = ["main"]
