"""Convert a test process's answer about one or two GPUs to the record of the test."""

from __future__ import annotations

from typing import Any, TypeVar

from preflight.model.codec import decode, decode_value, encode
from preflight.model.device_job import JobGroup, JobKind
from preflight.model.gap import Gap
from preflight.model.gpu_test import (
    Arrived,
    CopyResult,
    Ending,
    Gemm,
    GpuTest,
    HostCopy,
    PairSpeed,
    PairTruth,
    UnderLoad,
)
from preflight.model.trial import RankEnd
from preflight.model.units import size_text

NOT_ASKED = Gap("the ranks don't ask the driver")
NOT_REACHED = Gap("the test did not get so far")
GOES_ON = ("turn", "device", "done", "spawned")
PAIRS = frozenset({JobKind.PAIR_DATA, JobKind.PAIR_SPEED})

T = TypeVar("T")
Answer = dict[str, Any]  # {"group", "end", "events", "late"} as gpu_test_process.py publishes it


def skipped_group(group: JobGroup, why: str) -> Answer:
    """Return the answer for a group of tests that was not started, with the reason `why`."""
    end = RankEnd(group.owner, "skipped", "spawned", why)
    return {"group": encode(group), "end": encode(end), "events": [], "late": "time"}


def record_of(answer: Answer, gpus: tuple[int, ...], repetition: int) -> PairTruth | GpuTest:
    """Return the record of a test of two GPUs (PairTruth) or one GPU (GpuTest), from a test process's answer.

    `repetition` is 0, or the number of the repetition under load.
    """
    # `gpus` has the NVML indices of the run's GPUs.
    group = decode(JobGroup, answer["group"])
    is_pair = group.jobs[0].kind in PAIRS
    return _pair(answer, group, gpus, repetition) if is_pair else _gpu(answer, group, gpus, repetition)


def _pair(answer: Answer, group: JobGroup, gpus: tuple[int, ...], repetition: int) -> PairTruth:
    copies = _all(answer, "copied", CopyResult)
    wrong = [copy for copy in copies if copy.arrived is not Arrived.RIGHT]
    end, problem = _ended(answer, _describe(wrong))
    a, b = (gpus[place] for place in group.places)
    return PairTruth(
        a=a,
        b=b,
        driver=NOT_ASKED,
        cuda=next((bool(event["cuda"]) for event in answer["events"] if "cuda" in event), NOT_REACHED),
        end=end,
        problem=problem,
        copies=copies,
        speeds=_all(answer, "speed", PairSpeed),
        repetition=repetition,
        duration_s=_took_s(answer),
    )


def _gpu(answer: Answer, group: JobGroup, gpus: tuple[int, ...], repetition: int) -> GpuTest:
    gemms, copies = _all(answer, "gemm", Gemm), _all(answer, "host_copy", HostCopy)
    end, problem = _ended(answer, "; ".join([*_wrong_products(gemms), *_wrong_copies(copies)]))
    return GpuTest(
        gpu=gpus[group.places[0]],
        end=end,
        problem=problem,
        gemms=gemms,
        copies=copies,
        computing=_load(answer, "computing"),
        copying=_load(answer, "copying"),
        repetition=repetition,
        duration_s=_took_s(answer),
    )


def _all(answer: Answer, key: str, kind: type[T]) -> tuple[T, ...]:
    return tuple(decode(kind, event[key]) for event in answer["events"] if key in event)


def _took_s(answer: Answer) -> float:
    return float(answer.get("took_s", 0.0))


def _load(answer: Answer, key: str) -> UnderLoad | Gap:
    reported = next((event[key] for event in answer["events"] if key in event), None)
    load: UnderLoad | Gap = NOT_REACHED if reported is None else decode_value(UnderLoad | Gap, reported)
    return load


def _ended(answer: Answer, wrong: str) -> tuple[Ending, str]:
    """Return how a test ended, and a text on the end of the test.

    If data were wrong, the result is WRONG, no matter how the process ended.
    """
    end = decode(RankEnd, answer["end"])
    where = next((event["what"] for event in reversed(answer["events"]) if "what" in event), "")
    at = f"at {end.stage}{f' ({where})' if where and end.stage.split()[0] not in GOES_ON else ''}"
    inconclusive = next((event["inconclusive"] for event in answer["events"] if "inconclusive" in event), "")
    if wrong:
        return Ending.WRONG, wrong + ("" if end.ended == "done" else f"; then it ended {at}")
    if end.ended == "done":
        return (Ending.INCONCLUSIVE, inconclusive) if inconclusive else (Ending.OK, "")
    if end.ended in ("signal", "error", "fork", "timeout", "connection"):
        return Ending.CRASH, f"failed {at}: {end.detail}"
    if answer["late"] == "time":
        return Ending.SKIPPED, end.detail if end.ended == "skipped" else f"the time for it was up {at}"
    return Ending.HANG, f"hung {at}: {end.detail}"


def _describe(wrong: list[CopyResult]) -> str:
    """Return the wrong copies in one line: the kind of fault, the copy method, the directions and the sizes."""
    described = []
    for by, arrived in dict.fromkeys((copy.by, copy.arrived) for copy in wrong):
        alike = [copy for copy in wrong if (copy.by, copy.arrived) == (by, arrived)]
        ways = ", ".join(dict.fromkeys(copy.direction.value.replace("_", " ") for copy in alike))
        sizes = ", ".join(dict.fromkeys(size_text(copy.size_bytes) for copy in alike))
        described.append(f"{arrived.value.replace('_', ' ')} by {by.value.replace('_', ' ')} ({ways}; {sizes})")
    return "; ".join(described)


def _wrong_products(gemms: tuple[Gemm, ...]) -> list[str]:
    wrong = [f"{gemm.wrong_elements} wrong elements of a {gemm.dtype} GEMM" for gemm in gemms if gemm.wrong_elements]
    return wrong + [
        f"{gemm.differing_repeats} of {gemm.repeats} {gemm.dtype} GEMMs differ in their bits"
        for gemm in gemms
        if gemm.differing_repeats
    ]


def _wrong_copies(copies: tuple[HostCopy, ...]) -> list[str]:
    return [
        f"{copy.direction} copy of {size_text(copy.size_bytes)}: {copy.arrived.value.replace('_', ' ')}"
        for copy in copies
        if copy.arrived is not Arrived.RIGHT
    ]
