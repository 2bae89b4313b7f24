"""The records of the memory that a job needs, and of the free memory."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.gap import Gap
from preflight.model.word import Word


class Certainty(Word):
    """The levels of certainty of a MemoryTerm, the most certain level first.

    The sum for one level includes the terms of this level and of all more certain levels.
    """

    CERTAIN = "certain"  # every such job needs this, unless it offloads, quantizes, or divides the model further
    USUAL = "usual"  # what the frameworks use by default
    ESTIMATE = "estimate"  # depends on the model's shape and the framework; with gradient checkpointing
    WITHOUT_CHECKPOINTING = "without_checkpointing"  # the same estimate without gradient checkpointing


class MemoryPlace(Word):
    """The kind of memory: GPU memory or host memory."""

    GPU = "gpu"  # of each GPU, if the work is divided evenly
    HOST = "host"  # of this node


class MemoryPhase(Word):
    """The phase of the job in which memory is needed."""

    LOADING = "loading"
    TRAINING = "training"
    SAVE = "save"


class FitVerdict(Word):
    """The verdict on whether a job fits into memory. The need is a lower bound, so no verdict promises a fit."""

    CANNOT_FIT = "cannot_fit"  # the certain need exceeds the free memory
    NOT_AS_USUAL = "not_as_usual"  # the need with the frameworks' defaults exceeds the free memory
    MAY_FIT = "may_fit"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MemoryTerm:
    """One part of a job's memory need: its name, its size in bytes, and the reason for the size."""

    name: str
    needed_bytes: int
    certainty: Certainty
    reason: str


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The memory that a job needs on the GPU or the host in one phase.

    Each term has a level of certainty. The sum for one level includes the terms of this level and of all more certain
    levels.
    """

    place: MemoryPlace
    phase: MemoryPhase
    terms: tuple[MemoryTerm, ...]
    at_least_bytes: int
    usual_bytes: int
    estimate_bytes: int | Gap  # a Gap if the model's shape is unknown
    without_checkpointing_bytes: int | Gap
    available_bytes: int | Gap
    available_source: str
    verdict: FitVerdict


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a job fits into memory, for `preflight timeout --params`. The worst verdict counts."""

    verdict: FitVerdict
    needs: tuple[MemoryNeed, ...]
    ways_out: tuple[str, ...] = ()  # if the job does not fit: other ways to run it, with a better verdict


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes in a Hugging Face config.json that determine the memory of activations."""

    hidden_size: int
    layers: int
    intermediate_size: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The model shape, and the sequences that a GPU processes in one step."""

    shape: ModelShape
    seq_len: int
    micro_batch: int


@dataclass(frozen=True, slots=True)
class Headroom:
    """The memory that a node has free for the job."""

    ranks: int  # the job's ranks on this node
    gpu_free_bytes: int | Gap  # on the fullest of the GPUs
    gpu_source: str
    host_bytes: int | Gap
    host_source: str
