"""`preflight timeout`: how long a collective of this job may wait, with the argument for it, and whether it fits."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from preflight.cli import job_options as options
from preflight.cli.options import Gpus, JsonPath
from preflight.cli.output import STDOUT, check_outputs, print_result, style
from preflight.cli.program import app
from preflight.model.gap import Gap
from preflight.model.job import Dtype, Job, Optimizer, Save, Strategy
from preflight.system.files import read_input

if TYPE_CHECKING:
    from preflight.model.facts import NodeFacts
    from preflight.model.fit import Batch, Fit
    from preflight.model.report import Report
    from preflight.model.storage import StorageSpeed


@app.command()
def timeout(
    params: options.Params = None,
    dtype: options.DtypeOption = Dtype.BF16,
    optimizer: options.OptimizerOption = Optimizer.ADAMW,
    strategy: options.StrategyOption = Strategy.DDP,
    save: options.SaveOption = Save.FULL,
    world_size: options.WorldSize = None,
    checkpoint_dir: options.Directory = None,
    preprocess: options.Preprocess = None,
    evaluate: options.Evaluate = None,
    compile_time: options.Compile = None,
    lora: options.Lora = None,
    current: options.Current = None,
    report: options.ReportIn = None,
    gpus: Gpus = None,
    seq_len: options.SeqLen = None,
    micro_batch: options.MicroBatch = None,
    config: options.ConfigIn = None,
    json: JsonPath = None,
) -> None:
    """Say how long a collective of this job may wait, each term of the sum, and the line that each framework takes.

    With --params also whether the job can fit into memory. Exit codes: 0 here it is, 1 no timeout that makes sense is
    long enough or the GPUs here are certainly too small, 2 usage, 3 the directory could not be or has to be measured.
    """
    from preflight.plan.job_text import parse_duration_s  # noqa: PLC0415  `--help` must not pay for it

    check_outputs(*([json] if json not in (None, STDOUT) else []))
    said = options.Said(
        params, world_size, lora, preprocess, evaluate, compile_time, seq_len, micro_batch, config
    )  # fmt: skip
    job = options.job_of(said, dtype, optimizer, strategy, save)
    batch = options.batch_of(said)
    current_s = None if current is None else parse_duration_s(current, "--current")
    seen = None if report is None else _report(report)
    node, chosen = _node(seen, gpus) if params is not None or gpus is not None else (None, ())
    if world_size is None:
        job = replace(job, world_size=(seen.world_size if seen else 0) or len(chosen) or 1)
    storage = None if checkpoint_dir is None else _measure(checkpoint_dir, job.world_size)
    fit = None if node is None or params is None else _fit(job, params, batch, node, chosen)
    _answer(job, current_s, seen, storage, fit, bool(chosen), params, json)


def _answer(
    job: Job, current_s: float | None, seen: Report | None, storage: StorageSpeed | None, fit: Fit | Gap | None,
    has_gpus: bool, params: str | None, json: str | None,
) -> None:  # fmt: skip
    """Print the answer and exit with what it means."""
    from preflight.model.fit import Fit, FitVerdict  # noqa: PLC0415
    from preflight.model.timeout import Source  # noqa: PLC0415
    from preflight.recommend.frameworks import DISTRIBUTIONS  # noqa: PLC0415
    from preflight.recommend.timeout import safe_timeout  # noqa: PLC0415
    from preflight.recommend.timeout_words import NOT_TO_RAISE, unmeasured  # noqa: PLC0415
    from preflight.recommend.timings import nccl_settings, timings  # noqa: PLC0415
    from preflight.render.json_document import render_timeout_json  # noqa: PLC0415
    from preflight.render.timeout import fit_lines, render_timeout  # noqa: PLC0415
    from preflight.system.installed import installed_versions  # noqa: PLC0415

    settings = nccl_settings(seen.nodes[0]) if seen and seen.nodes else dict(os.environ)
    measured = timings(seen.trials if seen else None, seen.world_size if seen else 0, storage, settings)
    safe = safe_timeout(job, measured, current_s, installed_versions(DISTRIBUTIONS))
    print_result(
        json,
        lambda: render_timeout_json(safe, job, measured, storage, fit),
        lambda: render_timeout(
            safe, job, params or "", NOT_TO_RAISE, style(), fit_lines(fit, style()), unmeasured(measured)
        ),
    )
    could_not_look = storage is not None and isinstance(measured.write_one_bytes_per_s, Gap)
    is_guess = safe.longest_source is Source.ASSUMED
    cannot_fit = has_gpus and isinstance(fit, Fit) and fit.verdict is FitVerdict.CANNOT_FIT
    if cannot_fit or not (safe.is_enough or is_guess):
        raise typer.Exit(1)
    raise typer.Exit(3 if could_not_look or not safe.is_enough else 0)


def _report(path: str) -> Report:
    from preflight.plan.report_text import parse_report  # noqa: PLC0415

    return parse_report(read_input(path), path)


def _node(seen: Report | None, gpus: str | None) -> tuple[NodeFacts, tuple[int, ...]]:
    """Return the node that the job would run on, from the report or else this one, and its GPUs by nvml_index."""
    from preflight import survey  # noqa: PLC0415
    from preflight.system.questions import live_machine  # noqa: PLC0415

    if seen and seen.nodes:
        return seen.nodes[0], survey.chosen_gpus(seen.nodes[0], gpus)
    node = survey.survey_machine(live_machine()).node
    return node, survey.chosen_gpus(node, gpus)


def _fit(job: Job, params: str, batch: Batch | None, node: NodeFacts, chosen: tuple[int, ...]) -> Fit | Gap:
    from preflight.plan.job_text import is_upper_bound  # noqa: PLC0415
    from preflight.plan.memory import will_it_fit  # noqa: PLC0415
    from preflight.plan.room import room_of  # noqa: PLC0415

    if is_upper_bound(params):
        return Gap(f"{params} is the most that such a model can have, and a lower bound needs what it has: 47B/13B")
    ranks = min(job.world_size, len(chosen)) if chosen else job.world_size
    return will_it_fit(job, room_of(node, chosen, ranks), batch)


def _measure(directory: str, ranks: int) -> StorageSpeed:
    """Try the directory, with a line of progress where a person looks on."""
    from preflight.cli.measuring import ShareShown  # noqa: PLC0415
    from preflight.probe.storage import BUDGET_S, NODE_WRITERS, measure_storage  # noqa: PLC0415

    shown = ShareShown(f"trying {directory}")
    try:
        return measure_storage(directory, min(ranks, NODE_WRITERS), BUDGET_S, shown.show)
    finally:
        shown.clear()
