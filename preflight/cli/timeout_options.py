"""What `preflight timeout` takes: the options that describe a training job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from preflight.check.option_kinds import PRINTED, JsonPath, Quiet, Verbose, choice, valued
from preflight.check.options import Gpus
from preflight.model.job import Dtype, Optimizer, Save, Strategy
from preflight.model.timeout import Framework

JOB, PAUSES, KNOWN = "The job", "Pauses in which one rank is awaited", "What is known already"

Params = Annotated[str | None, valued("N", "Parameters: 7B, 1.5B, 7e9; of experts 47B/13B (all/active).", group=JOB)]
DtypeOption = Annotated[Dtype, choice("Of the weights that the forward pass uses.", "--dtype", group=JOB)]
OptimizerOption = Annotated[Optimizer, choice("What is kept beside weights and gradients.", "--optimizer", group=JOB)]
StrategyOption = Annotated[Strategy, choice("How the model is divided among the ranks.", "--strategy", group=JOB)]
SaveOption = Annotated[
    Save, choice("Rank 0 writes all, each rank its part, or beside the training.", "--save", group=JOB)
]
WorldSize = Annotated[
    str | None, valued("N", "Ranks of the job (default: the report's, the GPUs chosen, or 1).", group=JOB)
]
Directory = Annotated[
    str | None, valued("DIR", "Where checkpoints go: its speed is tried with a bounded file.", group=PAUSES)
]
Preprocess = Annotated[str | None, valued("T", "One rank prepares data for so long: 30m, 1h30m.", group=PAUSES)]
Evaluate = Annotated[str | None, valued("T", "One rank evaluates for so long.", "--eval", group=PAUSES)]
Compile = Annotated[str | None, valued("T", "The first step compiles for so long.", "--compile", group=PAUSES)]
Lora = Annotated[str | None, valued("SHARE", "The share that is trained: 0.5% (as PEFT prints it).", group=JOB)]
Current = Annotated[str | None, valued("T", "The timeout that the job has, or died at: 1800.", group=KNOWN)]
FrameworkOption = Annotated[
    Framework | None, choice("Whose line to print (default: torch; -v: all).", "--framework", group=PRINTED)
]
ReportIn = Annotated[str | None, valued("FILE", "A report of `preflight check`; - is stdin.", group=KNOWN)]
SeqLen = Annotated[str | None, valued("N", "Tokens of a sequence, for an estimate of activations.", group=JOB)]
MicroBatch = Annotated[str | None, valued("N", "Sequences that a GPU works on at once (default 1).", group=JOB)]
ConfigIn = Annotated[str | None, valued("FILE", "The model's config.json, with --seq-len.", group=JOB)]


@dataclass(frozen=True, slots=True)
class TimeoutOptions:
    """Say how long a collective of this job may wait, each term of the sum, and the line that each framework takes.

    With --params also whether the job can fit into memory. Exit codes: 0 here it is, 1 no timeout that makes sense is
    long enough or the GPUs here are certainly too small, 2 usage, 3 the directory could not be or has to be measured.
    """

    params: Params = None
    dtype: DtypeOption = Dtype.BF16
    optimizer: OptimizerOption = Optimizer.ADAMW
    strategy: StrategyOption = Strategy.DDP
    save: SaveOption = Save.FULL
    world_size: WorldSize = None
    checkpoint_dir: Directory = None
    preprocess: Preprocess = None
    evaluate: Evaluate = None
    compile_time: Compile = None
    lora: Lora = None
    current: Current = None
    report: ReportIn = None
    gpus: Gpus = None
    seq_len: SeqLen = None
    micro_batch: MicroBatch = None
    config: ConfigIn = None
    framework: FrameworkOption = None
    json: JsonPath = None
    verbose: Verbose = False
    quiet: Quiet = False
