"""GPUs of different models run at the speed of the slowest, and nodes with different counts don't fit together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.chosen import chosen_gpus, name_of
from preflight.model.facts import Gpu, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity

SOURCE = "nvmlDeviceGetName"


def judge(case: Case) -> Iterator[Finding]:
    """Yield a WARN where the chosen GPUs of a node, or the nodes among each other, differ in model or number."""
    of_nodes = [(node, chosen_gpus(node, case)) for node in case.nodes]
    yield from (_mixed(node, gpus) for node, gpus in of_nodes if len({name_of(gpu) for gpu in gpus}) > 1)
    if len({_models(gpus) for _, gpus in of_nodes}) > 1:
        told = "; ".join(f"{node.host}: {_models(gpus)}" for node, gpus in of_nodes)
        yield _finding("the nodes", f"the nodes don't have the same GPUs: {told}", told)


def _mixed(node: NodeFacts, gpus: tuple[Gpu, ...]) -> Finding:
    counts = Counter(name_of(gpu) for gpu in gpus)
    rare = counts.most_common()[-1][0]
    odd = ",".join(str(gpu.nvml_index) for gpu in gpus if name_of(gpu) == rare)
    return _finding(f"{node.host} GPU {odd}", f"the GPUs are not all of one model: {_models(gpus)}", _models(gpus))


def _finding(subject: str, problem: str, seen: str) -> Finding:
    return Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=Severity.WARN,
        subject=subject,
        problem=f"{problem}; every step waits for the slowest",
        fix="use GPUs of one model: `--gpus` with their indices, or nodes that are alike",
        evidence=(Evidence("models", seen, SOURCE),),
    )


def _models(gpus: tuple[Gpu, ...]) -> str:
    counts = Counter(name_of(gpu) for gpu in gpus)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or "no GPU"


CHECK = RunCheck(
    name="gpu-mix",
    promise="the chosen GPUs are of one model, and every node has as many",
    blame=Blame.CONFIGURATION,
    reads=("gpus", "nodes"),
    blind_to="GPUs of one name with different clocks or power limits",
    judge=judge,
)
