"""The jobs of the GPU tests, which run on one or two GPUs without NCCL."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.gpu_test import PairLimit
from preflight.model.word import Word


class JobKind(Word):
    """The kind of a job on one or two GPUs, such as copies between two GPUs or matrix products."""

    PAIR_DATA = "pair_data"  # whether copies between two GPUs arrive intact
    PAIR_SPEED = "pair_speed"  # how fast these copies are
    GEMM = "gemm"
    HOST_COPY = "host_copy"


@dataclass(frozen=True, slots=True)
class NumaCpus:
    """A NUMA node and its CPUs. A thread on these CPUs gets host memory of this NUMA node."""

    numa_node: int
    cpus: tuple[int, ...]
    is_near: bool  # the GPU's own node


@dataclass(frozen=True, slots=True)
class ProductSize:
    """The size of a product of two square matrices."""

    dtype: str  # float32 | bfloat16
    rows: int


@dataclass(frozen=True, slots=True)
class DeviceJob:
    """One job on a GPU or on a pair of GPUs.

    `places` are the indices of the GPUs among the chosen GPUs. The ranks use the same CUDA indices.
    """

    kind: JobKind
    places: tuple[int, ...]  # two for a pair, else one
    sizes_bytes: tuple[int, ...]
    budget_s: float  # the time for each single measurement
    numa: tuple[NumaCpus, ...] = ()  # for host copies; empty: the NUMA node on which the process runs
    products: tuple[ProductSize, ...] = ()
    in_turn: bool = False  # wait for the same job of earlier GPUs, because they share the path to host memory


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs on the same GPU or the same two GPUs. One process runs the jobs one after another."""

    places: tuple[int, ...]
    owner: int  # the one of these places whose per-rank agent has its process run the jobs
    jobs: tuple[DeviceJob, ...]


@dataclass(frozen=True, slots=True)
class GpuTestRound:
    """Job groups that run at the same time. No GPU is in two groups."""

    label: str
    groups: tuple[JobGroup, ...]


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """The plan of the GPU tests: rounds before the test runs, and rounds under load after the test runs."""

    gpus: tuple[int, ...] = ()  # nvml_index by place
    rounds: tuple[GpuTestRound, ...] = ()
    share_of_time: float = 1 / 3  # of what is left before the deadline; the trials need the rest
    burn_rounds: tuple[GpuTestRound, ...] = ()
    burn_s: float = 0.0
    rounds_per_process: int = 0  # rounds after which new processes are started; 0: consecutive rounds share processes
    pair_limits: tuple[PairLimit, ...] = ()  # the rate that each pair should reach; a slower pair is timed again


NO_DEVICES = DevicePlan()  # the CPU path
