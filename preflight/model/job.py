"""The training job that somebody wants to run: as far as its timeout and its memory depend on it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Dtype(Enum):
    """Of the weights that the forward pass uses; with a 16-bit one the optimizer keeps an fp32 master copy."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class Optimizer(Enum):
    """What is kept per trained parameter besides weight and gradient."""

    ADAMW = "adamw"  # two fp32 moments
    ADAMW_8BIT = "adamw8bit"  # two 8-bit moments
    ADAFACTOR = "adafactor"  # factored: next to nothing
    SGD = "sgd"  # none
    MOMENTUM = "momentum"  # one fp32 moment


class Strategy(Enum):
    """How weights, gradients and optimizer states are divided among the ranks."""

    DDP = "ddp"
    FSDP = "fsdp"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"


class Save(Enum):
    """How a checkpoint is written."""

    FULL = "full"  # rank 0 gathers and writes everything
    SHARDED = "sharded"  # every rank writes its part
    ASYNC = "async"  # every rank copies its part to host memory and writes beside the training


RANKS_PER_NODE = 8  # assumed where only the ranks are known


@dataclass(frozen=True, slots=True)
class ParamCount:
    """Parameters of a model; of a mixture of experts all are stored and saved, fewer work on a token."""

    total: int
    active: int


@dataclass(frozen=True, slots=True)
class Job:
    """What the user said of the job; the phases are seconds in which one rank works while the others wait."""

    params: ParamCount | None = None
    dtype: Dtype = Dtype.BF16
    optimizer: Optimizer = Optimizer.ADAMW
    strategy: Strategy = Strategy.DDP
    save: Save = Save.FULL
    lora_share: float | None = None  # trained share of the parameters; None: all are trained
    world_size: int = 1
    preprocess_s: float = 0.0
    eval_s: float = 0.0
    compile_s: float = 0.0

    @property
    def assumed_nodes(self) -> int:
        """How many nodes the ranks fill at 8 to a node."""
        return -(-self.world_size // RANKS_PER_NODE)
