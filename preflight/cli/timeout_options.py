"""What `preflight timeout` takes: the options that describe a training job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from preflight.check.option_kinds import PRINTED, JsonPath, Quiet, Verbose, choice, valued
from preflight.check.options import Gpus
from preflight.model.job import Dtype, Optimizer, Save, Strategy
from preflight.model.timeout import Framework

JOB, PAUSES, KNOWN = "The job", "Pauses in which the other ranks wait", "Known values"

Params = Annotated[
    str | None, valued("N", "Number of parameters: 7B, 1.5B, 7e9; with experts 47B/13B (all/active).", group=JOB)
]
DtypeOption = Annotated[Dtype, choice("Data type of the weights in the forward pass.", "--dtype", group=JOB)]
OptimizerOption = Annotated[
    Optimizer, choice("Optimizer, which decides the size of its state.", "--optimizer", group=JOB)
]
StrategyOption = Annotated[Strategy, choice("How the ranks share the model.", "--strategy", group=JOB)]
SaveOption = Annotated[
    Save,
    choice(
        "How checkpoints are saved: by rank 0, by every rank (sharded), or in the background (async).",
        "--save",
        group=JOB,
    ),
]
WorldSize = Annotated[
    str | None,
    valued("N", "Number of ranks of the job [default: as in the report, else the chosen GPUs, else 1].", group=JOB),
]
Directory = Annotated[
    str | None,
    valued("DIR", "Measure the write speed of DIR, where checkpoints go, with a bounded file.", group=PAUSES),
]
Preprocess = Annotated[str | None, valued("T", "How long one rank prepares data: 30m, 1h30m.", group=PAUSES)]
Evaluate = Annotated[str | None, valued("T", "How long one rank evaluates: 10m.", "--eval", group=PAUSES)]
Compile = Annotated[str | None, valued("T", "How long the first step compiles: 5m.", "--compile", group=PAUSES)]
Lora = Annotated[str | None, valued("SHARE", "Share of trained parameters, as PEFT prints it: 0.5%.", group=JOB)]
Current = Annotated[str | None, valued("T", "Timeout that the job has or died at: 1800.", group=KNOWN)]
FrameworkOption = Annotated[
    Framework | None,
    choice("Framework to print the setting for [default: torch; -v: all].", "--framework", group=PRINTED),
]
ReportIn = Annotated[
    str | None, valued("FILE", "Report of `preflight check` with measured times; - is stdin.", group=KNOWN)
]
SeqLen = Annotated[str | None, valued("N", "Tokens per sequence, to estimate the memory of activations.", group=JOB)]
MicroBatch = Annotated[str | None, valued("N", "Sequences per GPU at a time [default: 1].", group=JOB)]
ConfigIn = Annotated[str | None, valued("FILE", "config.json of the model, with --seq-len.", group=JOB)]


@dataclass(frozen=True, slots=True)
class TimeoutOptions:
    """Compute a safe timeout for the collectives of a job.

    Prints the setting of each framework. With --params, it also estimates whether the job fits into GPU memory.
    Exit codes: 0 safe timeout found, 1 no sensible timeout is long enough or the GPUs are too small, 2 usage,
    3 the checkpoint directory could not or must be measured.
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
