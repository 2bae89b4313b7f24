"""The options of `preflight timeout`, which describe a training job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from preflight.check.option_kinds import PRINTED, JsonPath, Quiet, Verbose, choice, valued, words
from preflight.model.job import Dtype, Optimizer, Save, Strategy
from preflight.model.parsing import no_such
from preflight.model.timeout import ALIASES, Framework


def _framework(text: str) -> Framework:
    """Return the framework with this name or alias."""
    names = {each.value: each for each in Framework}
    name = text.strip().lower()
    if name in names | ALIASES:
        return (names | ALIASES)[name]
    raise no_such(f"--framework {text}", "framework", name, names)


JOB, PAUSES, KNOWN = "The job", "Pauses in which the other ranks wait", "Known values"

Params = Annotated[
    str | None,
    valued("N", "Number of parameters, such as 7B, 1.5B or 7e9. With experts: all/active, such as 47B/13B.", group=JOB),
]
DtypeOption = Annotated[
    Dtype,
    choice(
        f"Data type of the weights in the forward pass: {words(Dtype)}.",
        "--dtype",
        group=JOB,
        metavar="NAME",
        rare=True,
    ),
]
OptimizerOption = Annotated[
    Optimizer,
    choice(
        f"Optimizer, which determines the size of the optimizer state: {words(Optimizer)}.",
        "--optimizer",
        group=JOB,
        metavar="NAME",
        rare=True,
    ),
]
StrategyOption = Annotated[
    Strategy, choice(f"How the ranks share the model: {words(Strategy)}.", "--strategy", group=JOB, metavar="NAME")
]
SaveOption = Annotated[
    Save,
    choice(
        "How checkpoints are written: full (by rank 0), sharded (by all ranks), async (in the background).",
        "--save",
        metavar="NAME",
        group=JOB,
    ),
]
WorldSize = Annotated[
    str | None,
    valued("N", "Number of ranks [default: from --report, else one per GPU].", group=JOB),
]
Directory = Annotated[
    str | None,
    valued("DIR", "Measure how fast checkpoints can be written to DIR.", group=PAUSES),
]
Preprocess = Annotated[str | None, valued("T", "One rank prepares data for T, such as 30m or 1h30m.", group=PAUSES)]
SaveTime = Annotated[
    str | None,
    valued("T", "One checkpoint takes T, such as 12m.", "--save-time", group=PAUSES),
]
Evaluate = Annotated[str | None, valued("T", "One rank evaluates for T, such as 10m.", "--eval", group=PAUSES)]
Compile = Annotated[
    str | None, valued("T", "The first step compiles for T, such as 5m.", "--compile", group=PAUSES, rare=True)
]
Lora = Annotated[
    str | None,
    valued(
        "SHARE",
        "With LoRA, the share of trained parameters, such as 0.5%. PEFT prints this share as trainable%.",
        group=JOB,
        rare=True,
    ),
]
Current = Annotated[str | None, valued("T", "The running or failed job has the timeout T, such as 1800.", group=KNOWN)]
FrameworkOption = Annotated[
    Framework | None,
    typer.Option(
        "--framework",
        metavar="NAME",
        help=f"Print the setting for this framework: {words(Framework)} [default: torch, or all with -v].",
        parser=_framework,
        rich_help_panel=PRINTED,
    ),
]
ReportIn = Annotated[
    str | None,
    valued("FILE", "A report of `preflight check` with measured times. Use - for stdin.", group=KNOWN),
]
FromRun = Annotated[
    str | None,
    valued(
        "FILE",
        "Use the pauses of an earlier run. FILE is the preflight-run.json that `run` wrote after the job succeeded.",
        group=KNOWN,
        rare=True,
    ),
]
OnGpus = Annotated[
    str | None, valued("LIST", "GPUs of the job: numbers, such as 0-3, or UUIDs.", "--gpus", group=JOB, rare=True)
]
SeqLen = Annotated[
    str | None,
    valued("N", "Tokens per sequence, to estimate the memory of activations. Requires --config.", group=JOB, rare=True),
]
MicroBatch = Annotated[str | None, valued("N", "Sequences per GPU at a time [default: 1].", group=JOB, rare=True)]
ConfigIn = Annotated[
    str | None,
    valued(
        "FILE",
        "The model's config.json, to compute the size of a layer. With --seq-len, FILE also gives the memory of "
        "activations.",
        group=JOB,
        rare=True,
    ),
]


@dataclass(frozen=True, slots=True)
class TimeoutOptions:
    """Compute a safe timeout for the collectives of a job.
    The output shows how to set the timeout in your framework. With --params, `timeout` also estimates whether the job
    fits into GPU memory. Exit codes: 0 safe timeout found, 1 no timeout is long enough or the GPUs are too small,
    2 usage error, 3 inconclusive, because the speed of the checkpoint directory is unknown.
    """

    params: Params = None
    dtype: DtypeOption = Dtype.BF16
    optimizer: OptimizerOption = Optimizer.ADAMW
    strategy: StrategyOption = Strategy.DDP
    save: SaveOption = Save.FULL
    world_size: WorldSize = None
    checkpoint_dir: Directory = None
    save_time: SaveTime = None
    preprocess: Preprocess = None
    evaluate: Evaluate = None
    compile_time: Compile = None
    lora: Lora = None
    current: Current = None
    report: ReportIn = None
    from_run: FromRun = None
    gpus: OnGpus = None
    seq_len: SeqLen = None
    micro_batch: MicroBatch = None
    config: ConfigIn = None
    framework: FrameworkOption = None
    json: JsonPath = None
    verbose: Verbose = False
    quiet: Quiet = False
