"""The measurements on single GPUs and between two GPUs, without NCCL."""

from __future__ import annotations

from dataclasses import dataclass, replace

from preflight.model.counters import CounterChange
from preflight.model.gap import Gap
from preflight.model.gpu import P2pStatus
from preflight.model.word import Word


class CopyBy(Word):
    """The method of a copy between two GPUs: kernels, as in NCCL, or the copy engine, as in `tensor.to()`."""

    COPY_ENGINE = "copy_engine"
    SM = "sm"


class Direction(Word):
    """The direction of a copy between the two GPUs of a pair."""

    A_TO_B = "a_to_b"
    B_TO_A = "b_to_a"
    BOTH = "both"  # at once, on a stream each


class Arrived(Word):
    """The content of the target buffer after a copy that CUDA reported as successful."""

    RIGHT = "right"
    NEVER_WRITTEN = "never_written"  # every wrong element still held what was there before
    SCRAMBLED = "scrambled"


class Ending(Word):
    """The way in which a GPU test ended."""

    OK = "ok"
    WRONG = "wrong"  # it ran, and its data was wrong
    HANG = "hang"
    CRASH = "crash"
    INCONCLUSIVE = "inconclusive"  # the GPU had no memory left for it, or its process could not be started
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The result of one copy whose data were verified."""

    by: CopyBy
    direction: Direction
    size_bytes: int
    arrived: Arrived
    wrong_elements: int
    elements: int


@dataclass(frozen=True, slots=True)
class PairSpeed:
    """The speed in GB/s of copies between two GPUs. For both directions at once, the speed is the sum."""

    by: CopyBy
    direction: Direction
    size_bytes: int
    gb_s: float | Gap
    latency_us: float | Gap  # time per copy in a series of copies of a few bytes


@dataclass(frozen=True, slots=True)
class PairTruth:
    """The test results for a pair of GPUs: peer access according to the driver and CUDA, and whether data arrived."""

    a: int  # nvml_index, the smaller one
    b: int
    driver: P2pStatus | Gap  # the worse of READ and WRITE
    cuda: bool | Gap  # can_device_access_peer in both directions
    end: Ending
    problem: str  # "" if every byte was right
    copies: tuple[CopyResult, ...]
    speeds: tuple[PairSpeed, ...]
    repetition: int  # 0 before the trials, then each time under load
    duration_s: float


@dataclass(frozen=True, slots=True)
class Gemm:
    """A repeated matrix product.

    The factors are small integers, so the order of summation does not change the result.
    """

    dtype: str  # float32 | bfloat16
    rows: int  # of the square matrices
    repeats: int
    tflop_s: float | Gap  # from the median time
    slowest_us: float | Gap
    median_us: float | Gap
    wrong_elements: int  # against exact whole-number arithmetic on the CPU, in the rows that were computed there
    differing_repeats: int  # repeats whose bits were not those of the first
    digest: str  # of the result's bits, the same on every GPU


@dataclass(frozen=True, slots=True)
class HostCopy:
    """Copies between the GPU and pinned memory of a NUMA node."""

    direction: str  # h2d | d2h
    numa_node: int | Gap
    is_near: bool | Gap  # the GPU's own NUMA node
    size_bytes: int
    gb_s: float | Gap
    arrived: Arrived


@dataclass(frozen=True, slots=True)
class UnderLoad:
    """The values that NVML reported while the GPU was under load."""

    samples: int
    sm_mhz_median: float | Gap
    sm_mhz_min: int | Gap
    temperature_c_max: int | Gap
    power_w_max: float | Gap
    throttle_reasons: tuple[str, ...] | Gap  # all that any sample had
    pcie_gen_max: int | Gap  # sampled while copying: it falls while idle
    pcie_width_min: int | Gap
    throttled_samples: tuple[tuple[str, int], ...] = ()  # how many samples had each reason


@dataclass(frozen=True, slots=True)
class GpuTest:
    """The results of the matrix products and host copies of one GPU."""

    gpu: int  # nvml_index
    end: Ending
    problem: str
    gemms: tuple[Gemm, ...]
    copies: tuple[HostCopy, ...]
    computing: UnderLoad | Gap
    copying: UnderLoad | Gap
    repetition: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class PairLimit:
    """The one-way rate that the links between two GPUs can carry."""

    a: int
    b: int
    level: str  # as in GpuPath
    gb_s: float


UNTESTED = "no GPU was tested"


@dataclass(frozen=True, slots=True)
class Hardware:
    """All measurements of a run that do not use NCCL."""

    pairs: tuple[PairTruth, ...]
    gpus: tuple[GpuTest, ...]
    counters: tuple[CounterChange, ...] | Gap
    burn_s: float | Gap  # for how long the GPUs were kept under load
    counted_s: float = 0.0  # between the two readings of the counters
    host_limits_gb_s: tuple[tuple[int, float], ...] = ()  # what each GPU's PCIe link carries one way, by nvml_index
    pair_limits: tuple[PairLimit, ...] = ()
    disturbed: str = ""  # why no speed counts; "" if no other process used the GPUs
    untested: str = UNTESTED  # why `pairs` or `gpus` is empty


def without_hardware_speeds(hardware: Hardware, why: str) -> Hardware:
    """Return `hardware` without speeds: every speed is a Gap with the reason `why`.

    The results of data verification are kept.
    """
    gap = Gap(why)
    pairs = tuple(
        replace(pair, speeds=tuple(replace(speed, gb_s=gap, latency_us=gap) for speed in pair.speeds))
        for pair in hardware.pairs
    )
    gpus = tuple(
        replace(
            test,
            gemms=tuple(replace(gemm, tflop_s=gap, slowest_us=gap, median_us=gap) for gemm in test.gemms),
            copies=tuple(replace(copy, gb_s=gap) for copy in test.copies),
        )
        for test in hardware.gpus
    )
    return replace(hardware, pairs=pairs, gpus=gpus, disturbed=why)
