"""The properties of a training job that determine its timeout and its memory."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.fit import ModelShape
from preflight.model.job_phases import Silence
from preflight.model.word import Word


class Dtype(Word):
    """The data type of the weights in the forward pass. With a 16-bit type, the optimizer keeps an fp32 copy."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class Optimizer(Word):
    """The optimizer, which determines the extra memory per trained parameter."""

    ADAMW = "adamw"  # two fp32 moments
    ADAMW_8BIT = "adamw8bit"  # two 8-bit moments
    ADAFACTOR = "adafactor"  # factored: next to nothing
    SGD = "sgd"  # none
    MOMENTUM = "momentum"  # one fp32 moment


class Strategy(Word):
    """How weights, gradients and optimizer states are divided among the ranks."""

    DDP = "ddp"
    FSDP = "fsdp"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"


class Save(Word):
    """The way in which a checkpoint is written."""

    FULL = "full"  # rank 0 gathers and writes everything
    SHARDED = "sharded"  # every rank writes its part
    ASYNC = "async"  # every rank copies its part to host memory and writes it while training continues


RANKS_PER_NODE = 8  # assumed where only the ranks are known


@dataclass(frozen=True, slots=True)
class ParamCount:
    """The number of parameters of a model.

    A mixture of experts stores all parameters, but uses fewer parameters for a token.
    """

    total: int
    active: int


@dataclass(frozen=True, slots=True)
class Job:
    """The user's description of the job. The `_s` fields are seconds in which only one rank works."""

    params: ParamCount | None = None
    dtype: Dtype = Dtype.BF16
    optimizer: Optimizer = Optimizer.ADAMW
    strategy: Strategy = Strategy.DDP
    save: Save = Save.FULL
    lora_share: float | None = None  # trained share of the parameters; None: all are trained
    world_size: int = 1
    save_s: float = 0.0  # one checkpoint; 0: not known
    preprocess_s: float = 0.0
    eval_s: float = 0.0
    compile_s: float = 0.0
    shape: ModelShape | None = None  # of the model's config.json
    silences: tuple[Silence, ...] = ()  # of an earlier run of this job that ended well

    @property
    def assumed_nodes(self) -> int:
        """The number of nodes if every node has 8 ranks."""
        return -(-self.world_size // RANKS_PER_NODE)
