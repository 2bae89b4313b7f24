"""Two ranks whose GPUs a fast link joins, and whose data takes a slower way: shared memory, or the network."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.wording import ranks_text
from preflight.judge.workaround import default_trial, works
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.trial import TrialResult
from preflight.plan.seats import BELOW_SWITCH, NVLINK, Seats, seats_of

WAY = re.compile(r"(\d{1,7})>(\d{1,7}) via (SHM|NET/Socket|NET).*")
MOST_SHOWN = 8


def judge(case: Case) -> Iterator[Finding]:
    """Yield a WARN for the pairs that NVLink or a common PCIe switch joins and that did not use it."""
    default = default_trial(case.trials)
    if default is None or not works(default) or len(case.nodes) != 1 or not case.gpus:
        return
    slow = _slow_ways(default)
    if not slow:
        return
    seats = seats_of(case.nodes[0])
    below = {pair: way for pair, way in slow.items() if _promises_more(_level(seats, case, pair), way)}
    if not below:
        return
    levels = sorted({_level(seats, case, pair) or "not known" for pair in below})
    ranks = {rank for pair in below for rank in pair}
    ways = " and ".join(sorted(set(below.values())))
    yield Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=Severity.WARN,
        subject=ranks_text(ranks),
        problem=f"{len(below)} {'pairs' if len(below) > 1 else 'pair'} of ranks went over {ways}, though their GPUs "
        f"are joined more closely ({', '.join(levels)})",
        fix="look for NCCL_P2P_DISABLE or NCCL_P2P_LEVEL in nccl.conf, for containers that share neither host name nor "
        "/dev/shm (`--ipc=host --uts=host`), and at `nvidia-smi topo -p2p r`",
        evidence=tuple(_evidence(seats, case, pair, way) for pair, way in sorted(below.items())[:MOST_SHOWN]),
    )


def _evidence(seats: Seats, case: Case, pair: tuple[int, int], way: str) -> Evidence:
    gpus = " and ".join(str(case.gpus[rank]) for rank in pair if rank < len(case.gpus))
    told = f"{way}; GPUs {gpus}: {_level(seats, case, pair) or '?'}"
    return Evidence(f"ranks {pair[0]} and {pair[1]}", told, "trial default, NCCL's log")


def _slow_ways(trial: TrialResult) -> dict[tuple[int, int], str]:
    found: dict[tuple[int, int], str] = {}
    for told in trial.transport:
        if match := WAY.fullmatch(told):
            a, b = sorted((int(match[1]), int(match[2])))
            found[a, b] = match[3]
    return found


def _level(seats: Seats, case: Case, pair: tuple[int, int]) -> str:
    return seats.level(case.gpus[pair[0]], case.gpus[pair[1]]) if max(pair) < len(case.gpus) else ""


def _promises_more(level: str, way: str) -> bool:
    """Tell whether a path is better than the way: any is than sockets, but adapters may serve well between CPUs."""
    return way == "NET/Socket" or NVLINK.fullmatch(level) is not None or level in BELOW_SWITCH


CHECK = RunCheck(
    name="transport-below-links",
    promise="ranks whose GPUs NVLink or a PCIe switch joins exchange their data over it",
    blame=Blame.CONFIGURATION,
    reads=("trials", "gpu_paths"),
    blind_to="pairs that a ring or tree of NCCL's does not connect, and NVLink beside PCIe, which NCCL both calls P2P",
    judge=judge,
)
