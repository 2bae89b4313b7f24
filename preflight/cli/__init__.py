"""The command line. The module `program` lists the commands and their modules."""

from preflight_nccl import stop_if_damaged

stop_if_damaged()  # the script of another project with a package `preflight` may have started this

from preflight.cli.program import main  # noqa: E402

__all__ = ["main"]
