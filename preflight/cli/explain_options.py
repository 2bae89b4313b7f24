"""What `preflight explain` takes."""

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
    str | None, valued("PATH", "Write the settings of a cause FOUND or LIKELY, untried.", "--env-out", group=PRINTED)
]


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """Name what really ended a failed or hung run, from its logs: the first failure, not its consequences.

    Exit codes: 0 nothing failed, 1 a cause was named, 2 usage, 3 not enough evidence.
    """

    logs: Logs
    json: option_kinds.JsonPath = None
    env_out: UnmeasuredEnv = None
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False
