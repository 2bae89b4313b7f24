from __future__ import annotations

from collections import Counter

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, node_check, run_check
from preflight.judge.finding_text import listed
from preflight.judge.gpus_of_node import NO_GPU, gpus_to_use, must_be_known, name_of
from preflight.model.facts import Gpu, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity, Unseen
from preflight.model.units import numbers_text
from preflight.search.gpus.gpu_set_advice import Boundary, Crossing, advise_gpus


@run_check("gpu-mix", blame=Blame.CONFIGURATION, unseen=Unseen.ACCEPTANCE, reads=("gpus", "nodes"))
def gpu_mix(case: Case) -> Findings:
    """The chosen GPUs are of one model, and every node has the same number of them.

    Yields a WARN if the chosen GPUs of a node are of several models. Also yields a WARN if the nodes differ in GPU
    model or number of GPUs.

    Can't see: GPUs with the same name but different clocks or power limits.
    """
    # GPUs of different models run at the speed of the slowest GPU. Nodes with different numbers of GPUs do not fit
    # together.
    of_nodes = [(node, gpus_to_use(node, case)) for node in case.nodes]
    if sum(len(gpus) for _, gpus in of_nodes) < 2:
        raise NotApplicable("fewer than two GPUs are used")
    must_be_known(((gpu, gpu.name) for _, gpus in of_nodes for gpu in gpus), "model")
    for node, gpus in of_nodes:
        counts = Counter(map(name_of, gpus)).most_common()
        if len(counts) > 1:
            odd = listed([gpu.nvml_index for gpu in gpus if name_of(gpu) == counts[-1][0]])
            problem = f"the GPUs are not all of one model: {_models(gpus)}"
            yield _mix_finding(f"{node.host} GPU {odd}", problem, _models(gpus))
    if len({_models(gpus) for _, gpus in of_nodes}) > 1:
        models = "; ".join(f"{node.host}: {_models(gpus)}" for node, gpus in of_nodes)
        yield _mix_finding("the nodes", f"the nodes don't have the same GPUs: {models}", models)


def _mix_finding(subject: str, problem: str, models: str) -> Finding:
    return gpu_mix.finding(
        Severity.WARN,
        subject,
        f"{problem}, so every step waits for the slowest GPU",
        "use GPUs of one model (choose them with `--gpus`), or nodes with the same GPUs",
        Evidence("GPU models", models, "nvmlDeviceGetName"),
    )


def _models(gpus: tuple[Gpu, ...]) -> str:
    counts = Counter(name_of(gpu) for gpu in gpus)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or "no GPU"


# Behind these the GPUs talk more slowly. NVLink passes NUMA nodes by: there only host memory and NICs are further.
SLOWER = frozenset({Boundary.MODEL, Boundary.NVLINK, Boundary.SWITCH})


@node_check("gpu-set", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("gpus", "gpu_paths", "nvidia_pci"))
def gpu_set(node: NodeFacts, case: Case) -> Findings:
    """No other set of equally many free GPUs is closer together than the chosen set.

    Yields a WARN if a closer set of equally many free GPUs makes the traffic between GPUs faster. For other advantages
    of a closer set, yields an INFO.

    Can't see: jobs that others will start on GPUs that are free now, and how far NICs are from the set.
    """
    # GPUs that are far apart communicate at the speed of the slowest path between them.
    advice = advise_gpus(node, case.gpus) if case.gpus else None
    if advice is None:
        raise NotApplicable(NO_GPU)
    if not advice.better or not advice.crossings:
        return
    gains = advice.better_worst != advice.worst or any(each.boundary in SLOWER for each in advice.crossings)
    yield gpu_set.finding(
        Severity.WARN if gains else Severity.INFO,
        f"{node.host} GPUs {listed(advice.gpus)}",
        f"the set spans {'; it also spans '.join(crossing_text(each) for each in advice.crossings)}",
        f"use `--gpus {listed(advice.better)}`, because {advice.reason}",
        Evidence(f"GPUs {listed(advice.gpus)}, slowest path", advice.worst or "unknown", "topology"),
        Evidence(f"GPUs {listed(advice.better)}, slowest path", advice.better_worst or "unknown", "topology"),
    )


def crossing_text(crossing: Crossing) -> str:
    """Return text that says which GPUs are on each side of a boundary such as a NUMA node."""
    # An example is `NUMA nodes (sockets): node 0 has GPUs 0-4; node 1 has GPUs 5-7`.
    sides = (f"{side.name} has GPU{'s' * (len(side.gpus) > 1)} {numbers_text(side.gpus)}" for side in crossing.sides)
    return f"{crossing.boundary.value}: {'; '.join(sides)}"
