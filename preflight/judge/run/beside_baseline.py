"""The default's repetitions beside what known-good nodes reach; several checks and the report look at it."""

from __future__ import annotations

from preflight.errors import UnreadableFact
from preflight.judge.check import Case
from preflight.model.baseline import Judged, difference, hardware_of, judge_node, repetitions_of
from preflight.model.facts import Gap, known
from preflight.model.units import size_text


def beside_baseline(case: Case) -> tuple[Judged, ...]:
    """Return each reference with this node's shares of it; UnreadableFact where they can't be compared."""
    if case.baseline is None:
        return ()
    if len(case.nodes) != 1:
        raise UnreadableFact("a baseline is of one node, and several ran together")
    differs = difference(hardware_of_case(case), case.baseline.hardware)
    if differs:
        raise UnreadableFact(f"{case.baseline_source} is of other hardware; this node has {differs}")
    judged = judge_node(case.baseline, repetitions_of(case.trials))
    if not judged:
        raise UnreadableFact(f"the default's trial measured nothing that {case.baseline_source} knows")
    return judged


def is_beside_baseline(case: Case) -> bool:
    """Tell whether the baseline decides about this run's speeds."""
    try:
        return bool(beside_baseline(case))
    except UnreadableFact:
        return False


def hardware_of_case(case: Case) -> tuple[tuple[str, str], ...]:
    """Return what must be equal for a comparison; UnreadableFact where it could not be read."""
    node = case.nodes[0]
    gpus = [] if isinstance(node.gpus, Gap) else [gpu for gpu in node.gpus if gpu.nvml_index in case.gpus]
    return hardware_of(case.backend, case.world_size, known(node.system).architecture, gpus)


def what(judged: Judged) -> str:
    """Return `all_reduce at 16 MiB and more` or `all_reduce 1 GiB`."""
    reference = judged.reference
    if reference.size_bytes:
        return f"{reference.collective.value} {size_text(reference.size_bytes)}"
    return f"{reference.collective.value}, {reference.group} sizes"
