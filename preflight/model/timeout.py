"""The safe timeouts of a job, each part of the time budget and its source, and each framework's settings."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.gap import Gap
from preflight.model.word import Word


class Framework(Word):
    """The frameworks for which preflight knows the timeout setting."""

    TORCH = "torch"
    TORCHRUN = "torchrun"
    TRANSFORMERS = "transformers"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"
    LIGHTNING = "lightning"
    MEGATRON = "megatron"
    TORCHTITAN = "torchtitan"


ALIASES = {  # other names of a framework that people type
    "pytorch": Framework.TORCH,
    "ddp": Framework.TORCH,
    "fsdp": Framework.TORCH,
    "huggingface": Framework.TRANSFORMERS,
    "hf": Framework.TRANSFORMERS,
    "trainer": Framework.TRANSFORMERS,
    "pytorch-lightning": Framework.LIGHTNING,
    "pytorch_lightning": Framework.LIGHTNING,
    "pl": Framework.LIGHTNING,
    "megatron-lm": Framework.MEGATRON,
}


class Source(Word):
    """The origin of a value in the time budget."""

    MEASURED = "measured"
    GIVEN = "given"
    ASSUMED = "assumed"


class Part(Word):
    """The timeout to which a part of the time budget belongs: for the start of the job, or for the training."""

    INIT = "init"  # until all ranks are through their first collective
    TRAINING = "training"


@dataclass(frozen=True, slots=True)
class Timings:
    """The timings that were measured on the machine.

    If a timing is missing, a `Gap` object says which measurement would give the timing.
    """

    write_one_bytes_per_s: float | Gap  # one rank alone into the checkpoint's directory
    write_all_bytes_per_s: float | Gap  # all ranks together, their sum
    read_one_bytes_per_s: float | Gap
    read_all_bytes_per_s: float | Gap
    directory: str  # "" where none was tried
    collective_s: float | Gap  # p99 of the slowest collective at its largest size
    collective_bytes: int
    connect_s: float | Gap  # making the group and its first collective, slowest rank
    spread_s: float | Gap  # between the fastest and the slowest rank in that collective
    ranks: int  # on how many ranks the collective's values were measured; 0: not measured
    nccl_report_s: float  # how long NCCL retries before it reports an error of its own
    nccl_report_why: str


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the time budget: a value, a factor, and the reason for both."""

    name: str
    part: Part
    value: float
    unit: str
    factor: int
    counts_s: float  # what it adds to the time budget; 0 if a longer pause covers it
    source: Source
    detail: str


@dataclass(frozen=True, slots=True)
class FrameworkLine:
    """The line that sets the timeout in a framework, with the name and the unit of that framework's setting."""

    name: str
    line: str
    value: int  # as written in the line
    unit: str  # "s" or "min"
    sets_s: int  # the same in seconds
    default_s: int | Gap
    absorbs_bytes: int | Gap  # the largest full checkpoint whose save the default absorbs
    note: str


@dataclass(frozen=True, slots=True)
class SafeTimeout:
    """The safe timeouts for the start of a job and for its training, and how they were computed.

    `pg_timeout_s` is the larger timeout.
    """

    # torch has one timeout for the start and the training.

    init_timeout_s: int
    training_timeout_s: int  # after the first step, for a framework that has two
    pg_timeout_s: int
    floor_s: int
    cap_s: int
    sum_s: float  # of the group's timeout, before rounding, floor and cap
    longest_pause_s: float  # the longest time for which one rank works while the others wait, without multiplier
    longest_source: Source | Gap
    dominated_by: str
    is_enough: bool  # False if even the cap is shorter than the longest pause
    checkpoint_bytes: int | Gap
    terms: tuple[Term, ...]
    verdict: str  # one sentence
    smaller: tuple[str, ...]  # what would make the timeout smaller
    notes: tuple[str, ...]
    frameworks: tuple[FrameworkLine, ...]
