"""`preflight run`: check the node, start the job with the tested settings, and explain a failure of the job."""

from __future__ import annotations

import os
import shlex
import shutil
from enum import Enum
from typing import Annotated

import typer

from preflight.check import option_kinds, options
from preflight.check.option_kinds import timed, valued
from preflight.check.request import Request
from preflight.cli.output import PROGRAM, check_outputs, refuse_stdout
from preflight.errors import UsageError
from preflight.job.job_gpus import engine_of_job, gpus_here, gpus_of_job
from preflight.job.order import VISIBLE, Order, become_supervisor
from preflight.system.signals import ignored_at_start
from preflight.system.streams import to_stderr
from preflight.trial.nodes.placement import Asked, find_placement

JOB = "The job"
UNASKED = Request()


class OnUnknown(Enum):
    """The action of `preflight run` if the check is inconclusive."""

    START = "start"
    STOP = "stop"


Command = Annotated[
    list[str], typer.Argument(metavar="COMMAND...", hidden=True, help="Command that starts the job without preflight.")
]
Reuse = Annotated[
    float | None,
    timed("If the last report is still valid and is younger than T, such as 1h, skip the check.", "--reuse", group=JOB),
]
NotReady = Annotated[
    int, valued("N", "If the check fails, do not start the job, and exit with N.", group=JOB, rare=True)
]
Unknown = Annotated[
    OnUnknown,
    options.choice(
        "If the check is inconclusive, start the job (start) or do not start the job (stop).",
        "--on-unknown",
        group=JOB,
        metavar="NAME",
    ),
]
AllowSockets = Annotated[
    bool,
    options.switch(
        "On several nodes, start the job even if InfiniBand or RoCE fails and only TCP works.",
        "--allow-sockets",
        group=JOB,
        rare=True,
    ),
]
StuckAfter = Annotated[
    float | None,
    timed(
        "If the job has no output or file I/O for T, run `stuck` [default: half of PREFLIGHT_PG_TIMEOUT_S, else 5m].",
        "--stuck-after",
        group=JOB,
    ),
]
KeepOutput = Annotated[str | None, valued("DIR", "Keep the output of the job in DIR, even after success.", group=JOB)]
SplitRanks = Annotated[
    bool,
    options.switch(
        "With torchrun, also write the output of each rank to a separate file. This adds --tee 3 to the command. "
        "With --tee 3, torchrun adds a prefix to each line.",
        "--split-ranks",
        group=JOB,
        rare=True,
    ),
]


def run(
    command: Command,
    gpus: options.Gpus = None,
    nproc: options.Nproc = None,
    backend: options.Backend = None,
    profile: options.ProfileOption = UNASKED.profile,
    deadline: options.Deadline = None,
    strict: options.Strict = False,
    env_out: options.EnvOut = "preflight.env",
    report: options.ReportOut = "preflight-report.json",
    nnodes: options.Nnodes = None,
    node_rank: options.NodeRank = None,
    rdzv_endpoint: options.Endpoint = None,
    rdzv_id: options.RunId = None,
    reuse: Reuse = None,
    exit_not_ready: NotReady = 78,
    on_unknown: Unknown = OnUnknown.START,
    allow_sockets: AllowSockets = False,
    stuck_after: StuckAfter = None,
    keep_output: KeepOutput = None,
    split_ranks: SplitRanks = False,
    verbose: option_kinds.Verbose = False,
    quiet: option_kinds.Quiet = False,
) -> None:
    """Check the node, start the job, and diagnose a hang or failure.
    The job gets the tested settings. If the job starts, the exit code is that of the job. Otherwise: 78 not ready,
    2 usage error, 3 inconclusive (--on-unknown stop).
    """
    if not 1 <= exit_not_ready <= 255:
        raise UsageError(f"--exit-not-ready {exit_not_ready}: give 1 to 255")
    refuse_stdout("--env-out", env_out)
    refuse_stdout("--report", report)
    check_outputs(env_out, report)
    if keep_output is not None:
        _make_folder(keep_output)
    if shutil.which(command[0]) is None:
        is_there = os.path.exists(command[0]) and os.sep in command[0]
        why = "not executable" if is_there else "not found"
        to_stderr(f"{PROGRAM}: {shlex.quote(command[0])}: {why}; nothing was checked\n")
        raise typer.Exit(126 if is_there else 127)
    request = Request(
        gpus=gpus, nproc=nproc, backend=backend, profile=profile, deadline=deadline, env_out=env_out, report=report,
        strict=strict, nnodes=nnodes, node_rank=node_rank, rdzv_endpoint=rdzv_endpoint, rdzv_id=rdzv_id,
        for_=engine_of_job(command),
        starts=os.path.basename(command[0]), starts_if_unknown=on_unknown is OnUnknown.START,
        starts_over_sockets=allow_sockets,
    )  # fmt: skip
    visible = gpus_of_job(command, os.environ, gpus_here()) if gpus is None and nproc is None else ""
    if visible:
        to_stderr(f"{PROGRAM}: the check takes GPUs {visible}, as the job's launcher does; --gpus takes others\n")
    environ = os.environ | ({VISIBLE: visible} if visible else {})
    is_reused = False
    if reuse is not None:
        from preflight.cli.earlier_report import use_again  # noqa: PLC0415  a job that is checked needs none

        is_reused = use_again(request, reuse, environ, is_quiet=quiet)
    order = Order(
        command=command,
        check=[] if is_reused else ["check", *request.arguments()],
        env_path=env_out,
        not_ready_code=exit_not_ready,
        starts_if_unknown=on_unknown is OnUnknown.START,
        stuck_after_s=stuck_after or 0.0,
        keep_dir=keep_output or "",
        splits_ranks=split_ranks,
        detail=["-q"] if quiet else ["-v"] if verbose else [],
        node_rank=_node_rank(Asked(nnodes, node_rank, rdzv_endpoint, rdzv_id)),
        visible=visible,
    )
    become_supervisor(order, ignored_at_start())


def _node_rank(asked: Asked) -> int:
    """Return this node's rank in the job.

    Return 0 if the sources of the rank contradict each other. The check then reports the contradiction.
    """
    try:
        return find_placement(asked, os.environ).node_rank
    except UsageError:
        return 0


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--keep-output {path}: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"--keep-output {path}: can't be written")
