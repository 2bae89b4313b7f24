"""Which GPUs a check looks at, and which of their values it may go without."""

from __future__ import annotations

from collections.abc import Iterable

from preflight.errors import UnreadableFact
from preflight.judge.check import Case
from preflight.judge.hardware import has_nvidia
from preflight.model.facts import Gap, Gpu, NodeFacts, known

# The GPU or the driver has no such thing; there is nothing to be known.
NOT_OFFERED = ("NVMLError_NotSupported", "NVMLError_FunctionNotFound", "AttributeError")


def chosen_gpus(node: NodeFacts, case: Case) -> tuple[Gpu, ...]:
    """Return the GPUs that are to be used, all where none were named; UnreadableFact where they can't be listed."""
    if isinstance(node.gpus, Gap) and not has_nvidia(node):
        return ()
    return tuple(gpu for gpu in known(node.gpus) if not case.gpus or gpu.nvml_index in case.gpus)


def is_chosen(index: int, case: Case) -> bool:
    """Tell whether the GPU with this nvml_index is to be used."""
    return not case.gpus or index in case.gpus


def name_of(gpu: Gpu) -> str:
    """Return the GPU's model."""
    return "GPU" if isinstance(gpu.name, Gap) else gpu.name


def subject(node: NodeFacts, gpu: Gpu) -> str:
    """Return `host GPU 3 (0000:1b:00.0)`."""
    where = "" if isinstance(gpu.bdf, Gap) else f" ({gpu.bdf})"
    return f"{node.host} GPU {gpu.nvml_index}{where}"


def must_be_known(values: Iterable[tuple[Gpu, object]], what: str) -> None:
    """Raise UnreadableFact for the first value that is there and could not be read.

    Called after everything that could be judged was judged: findings before it stand, the check counts as skipped.
    """
    for gpu, value in values:
        if isinstance(value, Gap) and not value.reason.startswith(NOT_OFFERED):
            raise UnreadableFact(f"the {what} of GPU {gpu.nvml_index} could not be read: {value.reason}")
