"""What the command line says of a training job: the options, and the record that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from preflight.errors import UsageError
from preflight.model.job import Dtype, Job, Optimizer, Save, Strategy
from preflight.plan import job_text

if TYPE_CHECKING:
    from preflight.model.fit import Batch

LONGEST_SEQUENCE, LARGEST_BATCH = 1 << 24, 1 << 16

Params = Annotated[
    str | None, typer.Option(metavar="N", help="Parameters: 7B, 1.5B, 500M; of experts 47B/13B (all/active).")
]
DtypeOption = Annotated[Dtype, typer.Option(help="Of the weights that the forward pass uses.")]
OptimizerOption = Annotated[Optimizer, typer.Option(help="What is kept beside weights and gradients.")]
StrategyOption = Annotated[Strategy, typer.Option(help="How the model is divided among the ranks.")]
SaveOption = Annotated[Save, typer.Option(help="Rank 0 writes all, each rank its part, or beside the training.")]
WorldSize = Annotated[
    str | None, typer.Option(metavar="N", help="Ranks of the job (default: the report's, the GPUs chosen, or 1).")
]
Directory = Annotated[
    str | None, typer.Option(metavar="DIR", help="Where checkpoints go: its speed is tried with a bounded file.")
]
Preprocess = Annotated[str | None, typer.Option(metavar="T", help="One rank prepares data for so long: 30m, 1h30m.")]
Evaluate = Annotated[str | None, typer.Option("--eval", metavar="T", help="One rank evaluates for so long.")]
Compile = Annotated[str | None, typer.Option("--compile", metavar="T", help="The first step compiles for so long.")]
Lora = Annotated[str | None, typer.Option(metavar="SHARE", help="The share that is trained: 0.5% (as PEFT prints it).")]
Current = Annotated[str | None, typer.Option(metavar="T", help="The timeout that the job has, or died at: 1800.")]
ReportIn = Annotated[str | None, typer.Option(metavar="FILE", help="A report of `preflight check`; - is stdin.")]
SeqLen = Annotated[str | None, typer.Option(metavar="N", help="Tokens of a sequence, for an estimate of activations.")]
MicroBatch = Annotated[str | None, typer.Option(metavar="N", help="Sequences that a GPU works on at once (default 1).")]
ConfigIn = Annotated[str | None, typer.Option(metavar="FILE", help="The model's config.json, with --seq-len.")]


@dataclass(frozen=True, slots=True)
class Said:
    """The words of the options, not yet read."""

    params: str | None
    world_size: str | None
    lora: str | None
    preprocess: str | None
    evaluate: str | None
    compile_time: str | None
    seq_len: str | None
    micro_batch: str | None
    config: str | None


def job_of(said: Said, dtype: Dtype, optimizer: Optimizer, strategy: Strategy, save: Save) -> Job:
    """Return the job as far as the options tell it; UsageError names the first that makes no sense."""
    return Job(
        params=None if said.params is None else job_text.parse_params(said.params),
        dtype=dtype, optimizer=optimizer, strategy=strategy, save=save,
        lora_share=None if said.lora is None else job_text.parse_lora_share(said.lora),
        world_size=1 if said.world_size is None else job_text.parse_count(said.world_size, "--world-size", 10**6),
        preprocess_s=_seconds("--preprocess", said.preprocess),
        eval_s=_seconds("--eval", said.evaluate),
        compile_s=_seconds("--compile", said.compile_time),
    )  # fmt: skip


def batch_of(said: Said) -> Batch | None:
    """Return what a GPU works on at once; None where nothing was said of it."""
    if said.seq_len is None and said.micro_batch is None and said.config is None:
        return None
    if said.seq_len is None or said.config is None:
        raise UsageError("--seq-len and --config: the memory of activations needs both")
    from preflight.model.fit import Batch  # noqa: PLC0415
    from preflight.plan.model_shape import parse_model_shape  # noqa: PLC0415
    from preflight.system.files import read_input  # noqa: PLC0415

    seq_len = job_text.parse_count(said.seq_len, "--seq-len", LONGEST_SEQUENCE)
    micro_batch = job_text.parse_count(said.micro_batch or "1", "--micro-batch", LARGEST_BATCH)
    return Batch(parse_model_shape(read_input(said.config), said.config), seq_len, micro_batch)


def _seconds(option: str, text: str | None) -> float:
    return 0.0 if text is None else job_text.parse_duration_s(text, option)
