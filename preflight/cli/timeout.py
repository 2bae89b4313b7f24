"""`preflight timeout`: compute how long a collective of this job may wait, and whether the job fits into GPU memory."""

from __future__ import annotations

import os
from dataclasses import replace

import typer

from preflight.check import survey
from preflight.cli.extras import is_linux, must_have_linux
from preflight.cli.output import check_outputs, detail_of, print_result, style
from preflight.cli.timeout_options import TimeoutOptions
from preflight.errors import UsageError
from preflight.facts.storage import BUDGET_S, NODE_WRITERS, measure_storage
from preflight.model.facts import NodeFacts
from preflight.model.fit import Batch, Fit, FitVerdict, ModelShape
from preflight.model.gap import Gap
from preflight.model.input_limits import MODEL_CONFIG, REPORT, RUN_RECORD
from preflight.model.job import Job
from preflight.model.job_phases import Silence
from preflight.model.parsing import parse_duration_s
from preflight.model.report import Report
from preflight.model.saved_report import load_report
from preflight.model.storage import StorageSpeed
from preflight.model.timeout import Source
from preflight.search.gpus.gpu_set import chosen_gpus
from preflight.show.text import clean
from preflight.show.timeout import FRAMEWORK, ShownTimeout, render_timeout_json, timeout_page
from preflight.system.inputs import read_input
from preflight.system.installed import installed_versions
from preflight.system.kernel_queries import live_machine
from preflight.system.streams import Progress
from preflight.timeout.frameworks import DISTRIBUTIONS
from preflight.timeout.job_text import (
    is_upper_bound,
    parse_count,
    parse_lora_share,
    parse_model_shape,
    parse_params,
    parse_run_record,
)
from preflight.timeout.memory import MOST_BYTES, headroom_of, is_thinkable, will_it_fit
from preflight.timeout.safe_timeout import safe_timeout, storage_range
from preflight.timeout.timings import nccl_settings, timings
from preflight.timeout.wording import NOT_TO_RAISE, unmeasured

MOST_RANKS = 10**6
LONGEST_SEQUENCE, LARGEST_BATCH = 1 << 24, 1 << 16


def timeout(asked: TimeoutOptions) -> None:
    """Run `preflight timeout`: compute the timeout, print how it was computed, and exit."""
    check_outputs(asked.json)
    job = Job(
        params=None if asked.params is None else parse_params(asked.params),
        dtype=asked.dtype, optimizer=asked.optimizer, strategy=asked.strategy, save=asked.save,
        lora_share=None if asked.lora is None else parse_lora_share(asked.lora),
        world_size=1 if asked.world_size is None else parse_count(asked.world_size, "--world-size", MOST_RANKS),
        save_s=seconds("--save-time", asked.save_time),
        preprocess_s=seconds("--preprocess", asked.preprocess),
        eval_s=seconds("--eval", asked.evaluate),
        compile_s=seconds("--compile", asked.compile_time),
    )  # fmt: skip
    batch = batch_of(asked.seq_len, asked.micro_batch, asked.config)
    job = replace(job, shape=batch.shape if batch else shape_of(asked.config), silences=silences_of(asked.from_run))
    current_s = None if asked.current is None else seconds("--current", asked.current)
    earlier = None if asked.report is None else load_report(read_input(asked.report, REPORT), asked.report)
    is_asked = asked.gpus is not None or (asked.params is not None and (is_linux() or earlier is not None))
    node, chosen = _node(earlier, asked.gpus) if is_asked else (None, ())
    taken = ""
    if asked.world_size is None:
        ranks, why = _ranks(earlier, chosen)
        job = replace(job, world_size=ranks)
        taken = f"Taken for {ranks} rank{'s' * (ranks > 1)}, {why} (change with --world-size)"
    storage = None
    if asked.checkpoint_dir is not None:
        must_have_linux("--checkpoint-dir")
        storage = _measure(asked.checkpoint_dir, job.world_size, Progress(is_quiet=asked.quiet))
    fit = None if node is None or asked.params is None else _fit(job, asked.params, batch, node, chosen)
    _answer(asked, job, current_s, earlier, storage, fit, bool(chosen), taken)


def _answer(
    asked: TimeoutOptions, job: Job, current_s: float | None, earlier: Report | None, storage: StorageSpeed | None,
    fit: Fit | Gap | None, has_gpus: bool, taken: str,
) -> None:  # fmt: skip
    """Print the timeout, and exit with the exit code that fits the timeout.

    `taken` says which number of ranks was assumed, and why.
    """
    settings = nccl_settings(earlier.nodes[0]) if earlier and earlier.nodes else dict(os.environ)
    measured = timings(earlier.trials if earlier else None, earlier.world_size if earlier else 0, storage, settings)
    versions = installed_versions(DISTRIBUTIONS)
    safe = safe_timeout(job, measured, current_s, versions)
    shown = ShownTimeout(
        safe, job, asked.params or "", fit, (storage_range(job, measured, versions), taken),
        asked.framework.value if asked.framework else FRAMEWORK, NOT_TO_RAISE, unmeasured(measured), asked.json or "",
        current_s,
    )  # fmt: skip
    detail = detail_of(asked.verbose, asked.quiet)
    print_result(
        asked.json,
        lambda: render_timeout_json(safe, job, measured, storage, fit),
        lambda: timeout_page(shown).shown(detail, style()),
    )
    could_not_look = storage is not None and isinstance(measured.write_one_bytes_per_s, Gap)
    is_guess = safe.longest_source is Source.ASSUMED
    cannot_fit = has_gpus and isinstance(fit, Fit) and fit.verdict is FitVerdict.CANNOT_FIT
    if cannot_fit or not (safe.is_enough or is_guess):
        raise typer.Exit(1)
    raise typer.Exit(3 if could_not_look or not safe.is_enough else 0)


def _ranks(earlier: Report | None, chosen: tuple[int, ...]) -> tuple[int, str]:
    """Return the number of ranks to assume without --world-size, and the source of that number."""
    if earlier is not None and earlier.world_size:
        return earlier.world_size, "as in the report"
    return (len(chosen), "one for each GPU here") if chosen else (1, "because nothing else is known")


def _node(earlier: Report | None, gpus: str | None) -> tuple[NodeFacts, tuple[int, ...]]:
    """Return the facts of the node on which the job will run, and the NVML indices of the GPUs to use.

    The facts come from the first node of the report `earlier`, or from this node if there is no report.
    """
    if earlier is None:
        must_have_linux("--gpus without --report")
    node = earlier.nodes[0] if earlier and earlier.nodes else survey.survey_machine(live_machine()).node
    return node, chosen_gpus(node, gpus)


def _fit(job: Job, params: str, batch: Batch | None, node: NodeFacts, chosen: tuple[int, ...]) -> Fit | Gap:
    if is_upper_bound(params):
        return Gap(f"{params} is the most that such a model can have, and a lower bound needs what it has: 47B/13B")
    ranks = min(job.world_size, len(chosen)) if chosen else job.world_size
    return will_it_fit(job, headroom_of(node, chosen, ranks), batch)


def _measure(directory: str, ranks: int, progress: Progress) -> StorageSpeed:
    """Measure the speed of the checkpoint directory `directory`, show the progress, and return the speed."""

    def show(share: float) -> None:
        text = f"measuring {clean(directory)}: {100 * min(1.0, max(0.0, share)):.0f}%"
        progress.show(lambda width: text[: max(0, width - 1)])

    try:
        return measure_storage(directory, min(ranks, NODE_WRITERS), BUDGET_S, show)
    finally:
        progress.clear()


def seconds(option: str, text: str | None) -> float:
    """Return `text`, the value of `option`, in seconds, or 0 if `text` is None."""
    return 0.0 if text is None else parse_duration_s(text, option)


def silences_of(record: str | None) -> tuple[Silence, ...]:
    """Return how long an earlier run printed nothing in each phase, read from the file `record`.

    Return () if `record` is None.
    """
    return () if record is None else parse_run_record(read_input(record, RUN_RECORD), record)


def shape_of(config: str | None) -> ModelShape | None:
    """Return the model shape from `config`, the path of a config.json, or None if `config` is None."""
    return None if config is None else parse_model_shape(read_input(config, MODEL_CONFIG), config)


def batch_of(seq_len: str | None, micro_batch: str | None, config: str | None) -> Batch | None:
    """Return the batch that a GPU processes at once, or None if `seq_len` and `micro_batch` are None.

    Raise UsageError if a required option is missing, or if the batch is too large.
    """
    if seq_len is None and micro_batch is None:
        return None
    if seq_len is None or config is None:
        raise UsageError("--seq-len and --config: the memory of activations needs both")
    tokens = parse_count(seq_len, "--seq-len", LONGEST_SEQUENCE)
    sequences = parse_count(micro_batch or "1", "--micro-batch", LARGEST_BATCH)
    batch = Batch(parse_model_shape(read_input(config, MODEL_CONFIG), config), tokens, sequences)
    if not is_thinkable(batch):
        raise UsageError(f"--seq-len {tokens} --micro-batch {sequences}: with {config} that is over {MOST_BYTES} bytes")
    return batch
