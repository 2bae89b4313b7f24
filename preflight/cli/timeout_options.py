"""The options of `preflight timeout`, which describe a training job, and what several of them mean together."""

from __future__ import annotations

from typing import Annotated

from preflight.cli.options import PRINTED, choice, valued
from preflight.errors import UsageError
from preflight.model.duration import parse_duration_s
from preflight.model.fit import Batch
from preflight.model.input_limits import MODEL_CONFIG
from preflight.model.job import Dtype, Optimizer, Save, Strategy
from preflight.system.inputs import read_input
from preflight.timeout.frameworks import Framework
from preflight.timeout.job_text import parse_count, parse_model_shape
from preflight.timeout.memory import MOST_BYTES, is_thinkable

LONGEST_SEQUENCE, LARGEST_BATCH = 1 << 24, 1 << 16

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


def seconds(option: str, text: str | None) -> float:
    """Return a time in seconds; 0 where the option was not given."""
    return 0.0 if text is None else parse_duration_s(text, option)


def batch_of(seq_len: str | None, micro_batch: str | None, config: str | None) -> Batch | None:
    """Return what a GPU works on at once; None where no option says anything about it."""
    if seq_len is None and micro_batch is None and config is None:
        return None
    if seq_len is None or config is None:
        raise UsageError("--seq-len and --config: the memory of activations needs both")
    tokens = parse_count(seq_len, "--seq-len", LONGEST_SEQUENCE)
    sequences = parse_count(micro_batch or "1", "--micro-batch", LARGEST_BATCH)
    batch = Batch(parse_model_shape(read_input(config, MODEL_CONFIG), config), tokens, sequences)
    if not is_thinkable(batch):
        raise UsageError(f"--seq-len {tokens} --micro-batch {sequences}: with {config} that is over {MOST_BYTES} bytes")
    return batch
