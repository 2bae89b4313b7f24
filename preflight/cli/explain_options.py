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
        help="Logs, folders or archives (tar, zip) of one run: plain, gzip, bzip2, zstd, xz; - is stdin.",
    ),
]
UnmeasuredEnv = Annotated[
    str | None,
    valued(
        "PATH",
        "Write variables that may help, but were not tested, to PATH.",
        "--env-out",
        group=PRINTED,
    ),
]


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """Find the root cause of a failed or hung run in its logs.

    Names the first failure, not its consequences. Exit codes: 0 nothing failed, 1 a cause was found, 2 usage, 3
    inconclusive.
    """

    logs: Logs
    json: option_kinds.JsonPath = None
    env_out: UnmeasuredEnv = None
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False
