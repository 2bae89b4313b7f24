"""The options of `preflight explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from preflight.check import option_kinds
from preflight.check.option_kinds import PRINTED, valued

Logs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG...",
        help="Logs of one run, or folders or archives (tar, zip) with its logs. The files can be plain or compressed "
        "(gzip, bzip2, zstd, xz). Use - for stdin.",
    ),
]
UnmeasuredEnv = Annotated[
    str | None,
    valued(
        "PATH",
        "Write to PATH the variables that may help. preflight has not tested these variables.",
        "--env-out",
        group=PRINTED,
    ),
]


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """Find the root cause of a failed or hung run in its logs.

    `explain` names the first failure, not its consequences. Exit codes: 0 nothing failed, 1 a cause was found, 2 usage
    error, 3 inconclusive.
    """

    logs: Logs
    json: option_kinds.JsonPath = None
    env_out: UnmeasuredEnv = None
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False
