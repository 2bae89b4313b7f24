"""Helpers for the checks of tests below NCCL: whether the tests ran, and how a GPU compares with its siblings."""

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
    5.0, "robust standard deviations below its siblings",
    "besides the share: seven siblings have a rough spread, so the usual three would blame good ones",
    JUDGMENT,
    "too low: noise blames a GPU; too high: a slow GPU among unequal ones passes",
)  # fmt: skip
LEAST_TO_JUDGE = 2  # siblings beside the one that is judged


def gpu_results_of(case: Case) -> Hardware:
    """Return the tests; NotApplicable if the run uses no GPU, NotRun if the tests did not run."""
    if not case.wants_gpus:
        raise NotApplicable(NO_GPU)
    if case.hardware is None:
        raise NotRun("the GPUs were not tested")
    if isinstance(case.hardware, Gap):
        raise NotRun(case.hardware.reason)
    return case.hardware


def must_have_run(tests: Iterable[PairTruth | GpuTest], hardware: Hardware) -> None:
    """Raise UnreadableFact for the first undecided test before the trials; raise NotRun if there are no tests.

    Call it after all tests were judged.
    """
    listed = list(tests)
    if not listed:
        raise NotRun(hardware.untested)
    for test in listed:
        if test.end in UNDECIDED and test.repetition == 0:
            who = f"GPUs {test.a} and {test.b}" if isinstance(test, PairTruth) else f"GPU {test.gpu}"
            sentence, *_ = test.problem.split(". ", 1)  # torch's text about memory has six lines
            raise UnreadableFact(f"{who}: {sentence}")


def must_have_speeds(hardware: Hardware) -> None:
    """Raise UnreadableFact if no speed counts."""
    if hardware.disturbed:
        raise UnreadableFact(hardware.disturbed)


def gpu_called(case: Case, index: int) -> str:
    """Return `host GPU 3 (0000:1b:00.0)`."""
    node = case.nodes[0]
    found = next((gpu for gpu in known_or(node.gpus, ()) if gpu.nvml_index == index), None)
    return f"{node.host} GPU {index}" if found is None else subject(node, found)


def by_gpu(values: Iterable[tuple[int, float | Gap]]) -> dict[int, float]:
    """Return each GPU's median over its repetitions, from the known values."""
    found: dict[int, list[float]] = defaultdict(list)
    for gpu, value in values:
        if not isinstance(value, Gap):
            found[gpu].append(value)
    return {gpu: median(several) for gpu, several in found.items()}


def gpu_laggards(case: Case, values: Mapping[int, float], below: float) -> list[tuple[int, float, float]]:
    """Return the result of `laggards` for a node's GPUs; only GPUs of one model are siblings."""
    return laggards(values, {gpu.nvml_index: name_of(gpu) for gpu in known_or(case.nodes[0].gpus, ())}, below)


def laggards(values: Mapping[int, float], model: Mapping[int, str], below: float) -> list[tuple[int, float, float]]:
    """Return place, value and the siblings' median of each item whose value is below the share `below` of this median.

    The value must also be lower than the usual spread of the siblings: SIGMAS robust standard deviations (median/MAD).
    With a single sibling, it is unknown which of the two is slow, unless the share is below the square of `below`.
    """
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
