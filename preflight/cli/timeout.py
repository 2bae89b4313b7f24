"""`preflight timeout`: how long a collective of this job may wait, with the argument for it, and whether it fits."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import typer

from preflight import survey
from preflight.cli import timeout_options
from preflight.cli.options import Gpus, JsonPath, Quiet, Verbose
from preflight.cli.output import Detail, check_outputs, detail_of, print_result, style
from preflight.model.facts import NodeFacts
from preflight.model.fit import Batch, Fit, FitVerdict
from preflight.model.gap import Gap
from preflight.model.input_limits import REPORT
from preflight.model.job import Dtype, Job, Optimizer, Save, Strategy
from preflight.model.report import Report
from preflight.model.saved_report import load_report
from preflight.model.storage import StorageSpeed
from preflight.model.timeout import Source
from preflight.plan.gpus.gpu_set import chosen_gpus
from preflight.probe.storage import BUDGET_S, NODE_WRITERS, measure_storage
from preflight.render.json_document import render_timeout_json
from preflight.render.text import clean
from preflight.render.timeout import render_timeout
from preflight.render.timeout_brief import render_timeout_brief, render_timeout_verdict
from preflight.system.inputs import read_input
from preflight.system.installed import installed_versions
from preflight.system.kernel_queries import live_machine
from preflight.system.streams import Progress
from preflight.timeout.frameworks import DISTRIBUTIONS, Framework
from preflight.timeout.job_text import is_upper_bound, parse_count, parse_lora_share, parse_params
from preflight.timeout.memory import headroom_of, will_it_fit
from preflight.timeout.safe_timeout import safe_timeout, storage_range
from preflight.timeout.timings import nccl_settings, timings
from preflight.timeout.wording import NOT_TO_RAISE, unmeasured

MOST_RANKS = 10**6


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the page depends on beside the job."""

    params: str  # as typed
    framework: Framework | None
    detail: Detail
    taken: str  # what the number of ranks was taken for, where it was not given
    json: str | None


def timeout(
    params: timeout_options.Params = None,
    dtype: timeout_options.DtypeOption = Dtype.BF16,
    optimizer: timeout_options.OptimizerOption = Optimizer.ADAMW,
    strategy: timeout_options.StrategyOption = Strategy.DDP,
    save: timeout_options.SaveOption = Save.FULL,
    world_size: timeout_options.WorldSize = None,
    checkpoint_dir: timeout_options.Directory = None,
    preprocess: timeout_options.Preprocess = None,
    evaluate: timeout_options.Evaluate = None,
    compile_time: timeout_options.Compile = None,
    lora: timeout_options.Lora = None,
    current: timeout_options.Current = None,
    report: timeout_options.ReportIn = None,
    gpus: Gpus = None,
    seq_len: timeout_options.SeqLen = None,
    micro_batch: timeout_options.MicroBatch = None,
    config: timeout_options.ConfigIn = None,
    framework: timeout_options.FrameworkOption = None,
    json: JsonPath = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Say how long a collective of this job may wait, each term of the sum, and the line that each framework takes.

    With --params also whether the job can fit into memory. Exit codes: 0 here it is, 1 no timeout that makes sense is
    long enough or the GPUs here are certainly too small, 2 usage, 3 the directory could not be or has to be measured.
    """
    check_outputs(json)
    job = Job(
        params=None if params is None else parse_params(params),
        dtype=dtype, optimizer=optimizer, strategy=strategy, save=save,
        lora_share=None if lora is None else parse_lora_share(lora),
        world_size=1 if world_size is None else parse_count(world_size, "--world-size", MOST_RANKS),
        preprocess_s=timeout_options.seconds("--preprocess", preprocess),
        eval_s=timeout_options.seconds("--eval", evaluate),
        compile_s=timeout_options.seconds("--compile", compile_time),
    )  # fmt: skip
    batch = timeout_options.batch_of(seq_len, micro_batch, config)
    current_s = None if current is None else timeout_options.seconds("--current", current)
    earlier = None if report is None else load_report(read_input(report, REPORT), report)
    node, chosen = _node(earlier, gpus) if params is not None or gpus is not None else (None, ())
    taken = ""
    if world_size is None:
        ranks, why = _ranks(earlier, chosen)
        job, taken = replace(job, world_size=ranks), f"Taken for {ranks} rank{'s' * (ranks > 1)}, {why}: --world-size"
    storage = None if checkpoint_dir is None else _measure(checkpoint_dir, job.world_size, Progress(is_quiet=quiet))
    fit = None if node is None or params is None else _fit(job, params, batch, node, chosen)
    asked = _Asked(params or "", framework, detail_of(verbose, quiet), taken, json)
    _answer(job, current_s, earlier, storage, fit, bool(chosen), asked)


def _answer(
    job: Job, current_s: float | None, earlier: Report | None, storage: StorageSpeed | None, fit: Fit | Gap | None,
    has_gpus: bool, asked: _Asked,
) -> None:  # fmt: skip
    """Print the answer and exit with what it means."""
    settings = nccl_settings(earlier.nodes[0]) if earlier and earlier.nodes else dict(os.environ)
    measured = timings(earlier.trials if earlier else None, earlier.world_size if earlier else 0, storage, settings)
    versions = installed_versions(DISTRIBUTIONS)
    safe = safe_timeout(job, measured, current_s, versions)

    def shown() -> str:
        if asked.detail is Detail.VERDICT:
            return render_timeout_verdict(safe, style())
        if asked.detail is Detail.ALL:
            return render_timeout(safe, job, asked.params, NOT_TO_RAISE, style(), fit, unmeasured(measured))
        remarks = (storage_range(job, measured, versions), asked.taken)
        name = asked.framework and asked.framework.value
        return render_timeout_brief(safe, job, asked.params, style(), remarks, name, fit, asked.json or "")

    print_result(asked.json, lambda: render_timeout_json(safe, job, measured, storage, fit), shown)
    could_not_look = storage is not None and isinstance(measured.write_one_bytes_per_s, Gap)
    is_guess = safe.longest_source is Source.ASSUMED
    cannot_fit = has_gpus and isinstance(fit, Fit) and fit.verdict is FitVerdict.CANNOT_FIT
    if cannot_fit or not (safe.is_enough or is_guess):
        raise typer.Exit(1)
    raise typer.Exit(3 if could_not_look or not safe.is_enough else 0)


def _ranks(earlier: Report | None, chosen: tuple[int, ...]) -> tuple[int, str]:
    """Return the ranks of a job of which nobody said how many it has, and where the number is from."""
    if earlier is not None and earlier.world_size:
        return earlier.world_size, "as in the report"
    return (len(chosen), "one for each GPU here") if chosen else (1, "as nothing else is known")


def _node(earlier: Report | None, gpus: str | None) -> tuple[NodeFacts, tuple[int, ...]]:
    """Return the node that the job would run on, from the report or else this one, and its GPUs by nvml_index."""
    node = earlier.nodes[0] if earlier and earlier.nodes else survey.survey_machine(live_machine()).node
    return node, chosen_gpus(node, gpus)


def _fit(job: Job, params: str, batch: Batch | None, node: NodeFacts, chosen: tuple[int, ...]) -> Fit | Gap:
    if is_upper_bound(params):
        return Gap(f"{params} is the most that such a model can have, and a lower bound needs what it has: 47B/13B")
    ranks = min(job.world_size, len(chosen)) if chosen else job.world_size
    return will_it_fit(job, headroom_of(node, chosen, ranks), batch)


def _measure(directory: str, ranks: int, progress: Progress) -> StorageSpeed:
    """Try the directory, and say how far that is."""

    def show(share: float) -> None:
        text = f"trying {clean(directory)}: {100 * min(1.0, max(0.0, share)):.0f} %"
        progress.show(lambda width: text[: max(0, width - 1)])

    try:
        return measure_storage(directory, min(ranks, NODE_WRITERS), BUDGET_S, show)
    finally:
        progress.clear()
