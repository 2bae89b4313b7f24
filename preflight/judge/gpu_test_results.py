"""Helper functions for the checks of GPU tests that do not use NCCL, such as the comparison of equal GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median

from preflight.errors import NotApplicable, NotRun, UnreadableFact
from preflight.judge.check import Case
from preflight.judge.gpus_of_node import NO_GPU, name_of, subject
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import Gap, known_or
from preflight.model.gpu_test import Ending, GpuTest, Hardware, PairTruth
from preflight.model.stats import MAD_TO_SIGMA

UNDECIDED = frozenset({Ending.INCONCLUSIVE, Ending.SKIPPED})
SIGMAS = Bound(
    5.0, "robust standard deviations below the other GPUs of the node",
    "a GPU is reported only if it misses this limit and the share above; with seven other GPUs, three deviations "
    "would reject good "
    "GPUs by chance",
    JUDGMENT,
    "too low: noise rejects a good GPU; too high: a slow GPU among unequal GPUs passes",
)  # fmt: skip
LEAST_TO_JUDGE = 2  # siblings, without the GPU that is judged


def gpu_results_of(case: Case) -> Hardware:
    """Return the results of the GPU tests. Raise NotApplicable if the run uses no GPU.

    Raise NotRun if the tests did not run.
    """
    if not case.wants_gpus:
        raise NotApplicable(NO_GPU)
    if case.hardware is None:
        raise NotRun("the GPUs were not tested")
    if isinstance(case.hardware, Gap):
        raise NotRun(case.hardware.reason)
    return case.hardware


def must_have_run(tests: Iterable[PairTruth | GpuTest], hardware: Hardware) -> None:
    """Raise NotRun if `tests` is empty. Raise UnreadableFact if a GPU test at the start has no result.

    Call this function after all tests were judged.
    """
    # `hardware` has the reason if there are no tests.
    listed = list(tests)
    if not listed:
        raise NotRun(hardware.untested)
    for test in listed:
        if test.end in UNDECIDED and test.repetition == 0:
            who = f"GPUs {test.a} and {test.b}" if isinstance(test, PairTruth) else f"GPU {test.gpu}"
            sentence, *_ = test.problem.split(". ", 1)  # torch's text about memory has six lines
            raise UnreadableFact(f"{who}: {sentence}")


def must_have_speeds(hardware: Hardware) -> None:
    """Raise UnreadableFact if the measured speeds are invalid because another process used the GPUs."""
    if hardware.disturbed:
        raise UnreadableFact(hardware.disturbed)


def gpu_called(case: Case, index: int) -> str:
    """Return the name of GPU `index` for reports, such as `host GPU 3 (0000:1b:00.0)`."""
    node = case.nodes[0]
    found = next((gpu for gpu in known_or(node.gpus, ()) if gpu.nvml_index == index), None)
    return f"{node.host} GPU {index}" if found is None else subject(node, found)


def by_gpu(values: Iterable[tuple[int, float | Gap]]) -> dict[int, float]:
    """Return the median value of each GPU, by NVML index. `values` are (NVML index, value).

    Values that could not be read (Gaps) are left out.
    """
    found: dict[int, list[float]] = defaultdict(list)
    for gpu, value in values:
        if not isinstance(value, Gap):
            found[gpu].append(value)
    return {gpu: median(several) for gpu, several in found.items()}


def gpu_laggards(case: Case, values: Mapping[int, float], below: float) -> list[tuple[int, float, float]]:
    """Return (GPU, value, median of the others) for each GPU that is far below the other GPUs of its model.

    See `laggards` for the meaning of "far below".
    """
    return laggards(values, {gpu.nvml_index: name_of(gpu) for gpu in known_or(case.nodes[0].gpus, ())}, below)


def laggards(values: Mapping[int, float], model: Mapping[int, str], below: float) -> list[tuple[int, float, float]]:
    """Return (GPU, value, median of the others) for each GPU that is far below the other GPUs of its model.

    `below` is the share of the median that a value must reach.
    """
    # A value is far below if two conditions hold. The value is less than the share `below` of the median. The value is
    # also more than SIGMAS robust standard deviations (from the MAD) less than the median. If there is only one other
    # GPU, the share is the square of `below`, because either of the two may be unusual.
    found = []
    for gpu, value in values.items():
        others = [other for each, other in values.items() if each != gpu and model.get(each) == model.get(gpu)]
        if not others:
            continue
        middle = median(others)
        spread = MAD_TO_SIGMA * median(abs(other - middle) for other in others)
        limit = below if len(others) >= LEAST_TO_JUDGE else below * below
        if value < limit * middle and value < middle - SIGMAS.value * spread:
            found.append((gpu, value, middle))
    return found
