"""The options that several commands have, and what their values mean; one name means the same everywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from preflight.errors import UsageError
from preflight.model.profile import Profile
from preflight.system.kernel_queries import live_machine, tree_machine
from preflight.system.machine import Machine
from preflight.timeout.job_text import parse_duration_s

LONGEST_DEADLINE_S = 7 * 86400.0


def valued(metavar: str, what: str, *names: str) -> Any:
    """Return an option with a value; its help says what that is."""
    return typer.Option(*names, metavar=metavar, help=what)


def timed(what: str, name: str) -> Any:
    """Return an option that takes a duration as people write it, in seconds: 90, 90s, 5m, 1h30m."""

    def parse(text: str) -> float:
        return parse_duration_s(text, name)

    return typer.Option(name, metavar="T", help=what, parser=parse)


def choice(what: str, *names: str) -> Any:
    """Return an option that takes one of a few words, in any case."""
    return typer.Option(*names, help=what, case_sensitive=False)


def _minutes(text: str) -> float:
    """Return minutes; a plain number is minutes, too."""
    try:
        return float(text)
    except ValueError:
        return parse_duration_s(text, "--minutes") / 60


Gpus = Annotated[str | None, valued("LIST", "GPUs as nvidia-smi numbers them: 6,7,8,9 or 0-3 or UUIDs.")]
Nproc = Annotated[int | None, valued("N", "Ranks, for backends that need no GPU (default 2).")]
Backend = Annotated[str | None, valued("NAME", "nccl, gloo, or NAME@MODULE that registers it.")]
ProfileOption = Annotated[Profile, choice("How thorough: seconds, minutes, or an hour under load.", "--profile")]
Deadline = Annotated[float | None, timed("End by then with what is known: 90, 5m (3m, 15m, 1h).", "--deadline")]
ProbeDeadline = Annotated[
    float | None, timed("End by then with what is known: 30, 1m; exit 3 if cut short.", "--deadline")
]
JsonPath = Annotated[str | None, valued("PATH", "Write one JSON document; - is stdout.", "--json")]
EnvOut = Annotated[str, valued("PATH", "Where the settings to source go.")]
ReportOut = Annotated[str, valued("PATH", "Where the full report goes.")]
Also = Annotated[
    list[str],
    valued(
        "FORMAT=FILE",
        "Write the report in another form too: junit, html, markdown, prometheus, nagios, drain, k8s, console.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Warnings count as failures.")]
Accept = Annotated[bool, typer.Option("--accept", help="Answer for the node, not for the job: 0 accept, 1 reject.")]
Shadow = Annotated[
    bool, typer.Option("--shadow", envvar="PREFLIGHT_SHADOW", help="Answer as always in the report, and exit with 0.")
]
Minutes = Annotated[
    float | None,
    typer.Option(metavar="N", help="How long --profile burn repeats its tests under load: 10, 1h.", parser=_minutes),
]
StageLimit = Annotated[float | None, timed("Override every stage's limit before it counts as hung.", "--stage-limit")]
PolicyFile = Annotated[str | None, valued("FILE", "TOML: what is fatal, warned, waived or expected here.", "--policy")]
BaselineFile = Annotated[str | None, valued("FILE", "Judge speeds by what `preflight baseline` learnt.", "--baseline")]
Nnodes = Annotated[int | None, valued("N", "Nodes; by itself: what Slurm or Kubernetes says, or 1.", "--nnodes")]
NodeRank = Annotated[int | None, valued("R", "Which of them this is, from 0.", "--node-rank")]
Endpoint = Annotated[str | None, valued("HOST:PORT", "Where node 0 is reached.", "--rdzv-endpoint")]
RunId = Annotated[str | None, valued("ID", "What keeps two runs at one place apart.", "--rdzv-id")]
Output = Annotated[str, valued("FILE", "Where it goes; - is stdout.", "--output", "-o")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the run's directory with all logs.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", envvar="PREFLIGHT_VERBOSE", help="Print everything, not just one screen.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict's line only.")]
TopoOption = Annotated[str | None, valued("FILE", "Read a pasted `nvidia-smi topo -m` instead; - is stdin.", "--topo")]
SharedDirectory = Annotated[
    str | None,
    valued(
        "DIR",
        "Try it: how fast it is. Several nodes: each writes here and reads another's file (node 0's word).",
        "--checkpoint-dir",
    ),
]
MachineOption = Annotated[str | None, valued("FILE", "Read what `preflight capture` wrote; - is stdin.", "--machine")]
PlayedMachine = Annotated[
    str | None, valued("FILE", "Have a stand-in --backend play the machine of a capture.", "--machine")
]
SysrootOption = Annotated[str | None, valued("DIR", "Read a recorded /sys and /proc tree instead.")]


def burn_seconds(minutes: float | None, profile: Profile) -> float | None:
    """Return what --minutes asks for in seconds; UsageError where the profile repeats nothing."""
    if minutes is None:
        return None
    if profile is not Profile.BURN:
        raise UsageError(f"--minutes {minutes:g}: only --profile burn repeats its tests")
    if not 0 < minutes * 60 <= LONGEST_DEADLINE_S:
        raise UsageError(f"--minutes {minutes:g}: give minutes above 0 and up to {LONGEST_DEADLINE_S / 60:.0f}")
    return minutes * 60


def machine_at(sysroot: str | None) -> Machine:
    """Return the machine of a recorded tree, or this one; UsageError where there is no tree."""
    if sysroot is None:
        return live_machine()
    if not os.path.isdir(sysroot):
        raise UsageError(f"--sysroot {sysroot}: not a directory")
    return tree_machine(Path(sysroot))
