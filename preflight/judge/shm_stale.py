"""Segments that dead jobs left in /dev/shm take memory until somebody removes them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.hardware import owner
from preflight.judge.wording import size_text
from preflight.model.facts import NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

MOST_NAMED = 5


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield an INFO where stale segments lie around, a WARN where they take more than half of /dev/shm."""
    shm = known(node.shm)
    files = tuple(name if name.startswith("/") else f"/dev/shm/{name}" for name in shm.stale_nccl_files)
    if not files:
        return
    named = " ".join(shlex.quote(name) for name in files[:MOST_NAMED])
    rest = " (and the others that `preflight probe --json -` lists)" if len(files) > MOST_NAMED else ""
    yield Finding(
        check=CHECK.name,
        blame=owner(node),
        severity=Severity.WARN if shm.stale_nccl_bytes * 2 > shm.size_bytes else Severity.INFO,
        subject=f"{node.host} /dev/shm",
        problem=f"{len(files)} segment{'s' if len(files) > 1 else ''} of dead NCCL jobs "
        f"take{'' if len(files) > 1 else 's'} {size_text(shm.stale_nccl_bytes)} of {size_text(shm.size_bytes)}",
        fix=f"when no NCCL job runs here: `rm {named}`{rest}",
        evidence=(
            Evidence("stale files", ", ".join(files[:MOST_NAMED]), "/dev/shm against /proc/*/maps"),
            Evidence("stale bytes", str(shm.stale_nccl_bytes), "stat"),
        ),
    )


CHECK = NodeCheck(
    name="shm-stale",
    promise="no dead job's nccl-* segments fill /dev/shm",
    blame=Blame.HOST,
    reads=("shm", "system"),
    blind_to="whether a process of another user or container, whose maps can't be read, still uses a segment",
    judge=judge,
)
