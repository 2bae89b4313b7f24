"""GPUs that sit far apart talk at the speed of the slowest path between them, though nearer ones may be free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.judge.check import Case, NodeCheck
from preflight.model.facts import NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.plan.gpu_advice import Boundary, Crossing, advise_gpus

# Behind these the GPUs talk more slowly. NVLink passes NUMA nodes by: there only host memory and NICs are further.
SLOWER = frozenset({Boundary.MODEL, Boundary.NVLINK, Boundary.SWITCH})


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN where a set of as many free GPUs sits better and the GPUs' own traffic gains, else an INFO."""
    if not len(case.gpus) > 0:
        return
    advice = advise_gpus(node, case.gpus)
    if not advice.better or not advice.crossings:
        return
    gains = advice.better_worst != advice.worst or any(each.boundary in SLOWER for each in advice.crossings)
    yield Finding(
        check=CHECK.name,
        blame=Blame.CONFIGURATION,
        severity=Severity.WARN if gains else Severity.INFO,
        subject=f"{node.host} GPUs {listed(advice.gpus)}",
        problem=f"the set crosses {'; '.join(crossing_text(each) for each in advice.crossings)}",
        fix=f"`--gpus {listed(advice.better)}` is better: {advice.reason}",
        evidence=(
            Evidence("slowest path", advice.worst or "unknown", "topology"),
            Evidence("of the better set", advice.better_worst or "unknown", "topology"),
        ),
    )


def crossing_text(crossing: Crossing) -> str:
    """Return `NUMA nodes (sockets): node 0 has GPUs 3,4, node 1 has GPUs 5,6`."""
    sides = ", ".join(f"{side.name} has GPU{'s' * (len(side.gpus) > 1)} {listed(side.gpus)}" for side in crossing.sides)
    return f"{crossing.boundary.value}: {sides}"


def listed(gpus: Sequence[int]) -> str:
    """Return GPUs as `--gpus` takes them."""
    return ",".join(map(str, gpus))


CHECK = NodeCheck(
    name="gpu-set",
    promise="no other set of as many free GPUs sits nearer together than the chosen one",
    blame=Blame.CONFIGURATION,
    reads=("gpus", "gpu_paths", "nvidia_pci"),
    blind_to="what other jobs will start on the GPUs that look free now; how far NICs are from the set",
    judge=judge,
)
