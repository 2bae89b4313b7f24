"""Whether a job's memory has room: what it needs at least, by place and phase, against what is free."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from preflight.model.gap import Gap


class Certainty(Enum):
    """How sure a term is, the surest first. Each sum includes those of the surer terms."""

    CERTAIN = "certain"  # no job of this kind does without, unless it offloads to the CPU
    USUAL = "usual"  # what the frameworks do unless told otherwise
    ESTIMATE = "estimate"  # depends on the model's shape and the framework; with gradient checkpointing
    WITHOUT_CHECKPOINTING = "without_checkpointing"  # the estimate where no activation is computed twice


class MemoryPlace(Enum):
    """Whose memory."""

    GPU = "gpu"  # each one, where the work is divided evenly
    HOST = "host"  # of this node


class MemoryPhase(Enum):
    """When it is needed."""

    TRAINING = "training"
    SAVE = "save"


class FitVerdict(Enum):
    """A lower bound can only refuse."""

    CANNOT_FIT = "cannot_fit"  # what is certain is more than there is
    MAY_FIT = "may_fit"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MemoryTerm:
    """One thing that takes memory, and why it takes this much."""

    name: str
    needed_bytes: int
    certainty: Certainty
    reason: str


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What one place needs in one phase; the sums of each certainty include those above it."""

    place: MemoryPlace
    phase: MemoryPhase
    terms: tuple[MemoryTerm, ...]
    at_least_bytes: int
    usual_bytes: int
    estimate_bytes: int | Gap  # a Gap where nothing was said of the model's shape
    without_checkpointing_bytes: int | Gap
    available_bytes: int | Gap
    available_source: str
    verdict: FitVerdict


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer to "will it fit", with the worst of the verdicts."""

    verdict: FitVerdict
    needs: tuple[MemoryNeed, ...]
    ways_out: tuple[str, ...] = ()  # where the bound refuses the job: other ways to run it that it does not refuse


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a Hugging Face config.json says of a model's size, as far as activations depend on it."""

    hidden_size: int
    layers: int
    intermediate_size: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What a GPU works on at once."""

    shape: ModelShape
    seq_len: int
    micro_batch: int


@dataclass(frozen=True, slots=True)
class Headroom:
    """What a node has to give."""

    ranks: int  # of the job on this node
    gpu_free_bytes: int | Gap  # on the fullest of the GPUs
    gpu_source: str
    host_bytes: int | Gap
    host_source: str
