"""The options of the command line; one that has the same name means the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from preflight.errors import UsageError
from preflight.model.profile import Profile

LONGEST_DEADLINE_S = 7 * 86400.0

Gpus = Annotated[
    str | None, typer.Option(metavar="LIST", help="GPUs as nvidia-smi numbers them: 6,7,8,9 or 0-3 or UUIDs.")
]
Nproc = Annotated[int | None, typer.Option(metavar="N", help="Ranks, for backends that need no GPU (default 2).")]
Backend = Annotated[str | None, typer.Option(metavar="NAME", help="nccl, gloo, or NAME@MODULE that registers it.")]
ProfileOption = Annotated[Profile, typer.Option(help="How thorough: seconds, minutes, or an hour under load.")]
Deadline = Annotated[float | None, typer.Option(metavar="S", help="End by then with what is known (180, 900, 3600).")]
ProbeDeadline = Annotated[
    float | None, typer.Option("--deadline", metavar="S", help="End by then with what is known; exit 3 if cut short.")
]
JsonPath = Annotated[str | None, typer.Option("--json", metavar="PATH", help="Write one JSON document; - is stdout.")]
EnvOut = Annotated[str, typer.Option(metavar="PATH", help="Where the settings to source go.")]
ReportOut = Annotated[str, typer.Option(metavar="PATH", help="Where the full report goes.")]
Also = Annotated[
    list[str],
    typer.Option(
        metavar="FORMAT=FILE",
        help="Write the report in another form too: junit, html, markdown, prometheus, nagios, drain, k8s, console.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Warnings count as failures.")]
Accept = Annotated[bool, typer.Option("--accept", help="Answer for the node, not for the job: 0 accept, 1 reject.")]
Minutes = Annotated[
    float | None, typer.Option(metavar="N", help="How long --profile burn repeats its tests under load (10).")
]
StageLimit = Annotated[
    float | None, typer.Option(metavar="S", help="Override every stage's limit before it counts as hung.")
]
Logs = Annotated[
    list[str],
    typer.Argument(metavar="LOG...", help="Logs of one run: plain, gzip, zstd, xz, nccl_trace_rank_*; - is stdin."),
]
UnmeasuredEnv = Annotated[
    str | None, typer.Option("--env-out", metavar="PATH", help="Write the env lines, unmeasured.")
]
PolicyFile = Annotated[
    str | None,
    typer.Option("--policy", metavar="FILE", help="TOML: what is fatal, warned, waived or expected here."),
]
BaselineFile = Annotated[
    str | None,
    typer.Option("--baseline", metavar="FILE", help="Judge speeds by what `preflight baseline` learnt."),
]
Nnodes = Annotated[
    int | None, typer.Option("--nnodes", metavar="N", help="Nodes; by itself: what Slurm or Kubernetes says, or 1.")
]
NodeRank = Annotated[int | None, typer.Option("--node-rank", metavar="R", help="Which of them this is, from 0.")]
Endpoint = Annotated[str | None, typer.Option("--rdzv-endpoint", metavar="HOST:PORT", help="Where node 0 is reached.")]
RunId = Annotated[str | None, typer.Option("--rdzv-id", metavar="ID", help="What keeps two runs at one place apart.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the run's directory with all logs.")]
TopoOption = Annotated[
    str | None, typer.Option("--topo", metavar="FILE", help="Read a pasted `nvidia-smi topo -m` instead; - is stdin.")
]
SharedDirectory = Annotated[
    str | None,
    typer.Option(
        "--checkpoint-dir",
        metavar="DIR",
        help="Try it: how fast it is. Several nodes: each writes here and reads another's file (node 0's word).",
    ),
]
MachineOption = Annotated[
    str | None, typer.Option("--machine", metavar="FILE", help="Read what `preflight capture` wrote; - is stdin.")
]
PlayedMachine = Annotated[
    str | None,
    typer.Option("--machine", metavar="FILE", help="Have a stand-in --backend play the machine of a capture."),
]
SysrootOption = Annotated[str | None, typer.Option(metavar="DIR", help="Read a recorded /sys and /proc tree instead.")]


def check_seconds(option: str, value: float | None) -> None:
    if value is not None and not 0 < value <= LONGEST_DEADLINE_S:
        raise UsageError(f"{option} {value:g}: give seconds above 0 and up to {LONGEST_DEADLINE_S:.0f}")


def burn_seconds(minutes: float | None, profile: Profile) -> float | None:
    """Return what --minutes asks for in seconds; UsageError where the profile repeats nothing."""
    if minutes is None:
        return None
    if profile is not Profile.BURN:
        raise UsageError(f"--minutes {minutes:g}: only --profile burn repeats its tests")
    if not 0 < minutes * 60 <= LONGEST_DEADLINE_S:
        raise UsageError(f"--minutes {minutes:g}: give minutes above 0 and up to {LONGEST_DEADLINE_S / 60:.0f}")
    return minutes * 60
