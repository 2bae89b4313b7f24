"""Without torch no rank can run; with a very old one nobody has tried."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.versions import version_tuple
from preflight.model.facts import Gap, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

OLDEST_RUN = (2, 1)


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a FAIL where torch is missing (INFO for `probe`, which needs none), a WARN where it is too old."""
    torch = known(node.software).torch
    if isinstance(torch, Gap):
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=Severity.FAIL if case.world_size else Severity.INFO,
            subject=f"{node.host} torch",
            problem=f"torch was not found, so nothing can be tried: {torch.reason}",
            fix="run preflight with the training environment's own Python: `source VENV/bin/activate && "
            "pip install preflight-nccl`",
            evidence=(Evidence("torch", torch.reason, "installed packages of the Python that runs preflight"),),
        )
    elif (0,) < version_tuple(torch.version) < OLDEST_RUN:
        oldest = ".".join(map(str, OLDEST_RUN))
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=Severity.WARN,
            subject=f"{node.host} torch",
            problem=f"torch {torch.version} is older than {oldest}, the oldest that preflight was really run with",
            fix=f"train with torch {oldest} or newer, or take this run's answers with care",
            evidence=(Evidence("torch", torch.version, torch.location),),
        )


CHECK = NodeCheck(
    name="torch-version",
    promise="torch is there, and no older than what preflight was run with",
    blame=Blame.HARNESS,
    reads=("software",),
    blind_to="whether that torch can be imported",
    judge=judge,
)
