"""A GPU whose every adapter hangs on another NUMA node sends all of its network traffic between the sockets."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.fabric import carries_traffic
from preflight.judge.gpu_set import listed
from preflight.model.facts import Gap, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

ACROSS = frozenset({"SYS", "SOC"})


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN where no chosen GPU has an adapter near and others have, an INFO where some have none."""
    levels: dict[int, list[str]] = {}
    for path in known(node.nic_paths):
        if not isinstance(path.level, Gap) and carries_traffic(node, path.nic):
            levels.setdefault(path.gpu, []).append(path.level)
    far = [gpu for gpu in case.gpus if levels.get(gpu) and ACROSS.issuperset(levels[gpu])]
    if not far:
        return
    near = sorted(gpu for gpu, seen in levels.items() if not ACROSS.issuperset(seen))
    none_near = len(far) == len(case.gpus) and bool(near)
    yield Finding(
        check=CHECK.name,
        blame=Blame.CONFIGURATION,
        severity=Severity.WARN if none_near else Severity.INFO,
        subject=f"{node.host} GPUs {listed(far)}",
        problem="every NIC is on another NUMA node: their network traffic crosses the sockets",
        fix=f"GPUs {listed(near)} have a NIC on their node; for jobs on several nodes choose among them"
        if near
        else "nothing on one node; else an adapter in a slot of the other socket",
        evidence=tuple(
            Evidence(f"GPU {gpu} to the NICs", ", ".join(sorted({*levels[gpu]})), "topology") for gpu in far
        ),
    )


CHECK = NodeCheck(
    name="nic-numa",
    promise="each chosen GPU has an active NIC on its own NUMA node, where there are NICs",
    blame=Blame.CONFIGURATION,
    reads=("nic_paths", "hca_ports"),
    blind_to="NICs without RDMA",
    judge=judge,
)
