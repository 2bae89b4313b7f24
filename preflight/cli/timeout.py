"""`preflight timeout`: how long a collective of this job may wait, with the argument for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from preflight.cli.options import JsonPath
from preflight.cli.output import STDOUT, check_outputs, print_result, style
from preflight.cli.program import app
from preflight.model.gap import Gap
from preflight.model.job import Dtype, Job, Optimizer, Save, Strategy
from preflight.system.files import read_input

if TYPE_CHECKING:
    from preflight.model.report import Report
    from preflight.model.storage import StorageSpeed

STORAGE_BUDGET_S = 5.0
MOST_WRITERS = 8  # ranks of one node that write together

Params = Annotated[
    str | None, typer.Option(metavar="N", help="Parameters: 7B, 1.5B, 500M; of experts 47B/13B (all/active).")
]
DtypeOption = Annotated[Dtype, typer.Option(help="Of the weights that the forward pass uses.")]
OptimizerOption = Annotated[Optimizer, typer.Option(help="What is kept beside weights and gradients.")]
StrategyOption = Annotated[Strategy, typer.Option(help="How the model is divided among the ranks.")]
SaveOption = Annotated[Save, typer.Option(help="Rank 0 writes all, each rank its part, or beside the training.")]
WorldSize = Annotated[str | None, typer.Option(metavar="N", help="Ranks of the job (default: the report's, or 1).")]
Directory = Annotated[
    str | None, typer.Option(metavar="DIR", help="Where checkpoints go: its speed is tried with a bounded file.")
]
Preprocess = Annotated[str | None, typer.Option(metavar="T", help="One rank prepares data for so long: 30m, 1h30m.")]
Evaluate = Annotated[str | None, typer.Option("--eval", metavar="T", help="One rank evaluates for so long.")]
Compile = Annotated[str | None, typer.Option("--compile", metavar="T", help="The first step compiles for so long.")]
Lora = Annotated[str | None, typer.Option(metavar="SHARE", help="The share that is trained: 0.5% (as PEFT prints it).")]
Current = Annotated[str | None, typer.Option(metavar="T", help="The timeout that the job has, or died at: 1800.")]
ReportIn = Annotated[str | None, typer.Option(metavar="FILE", help="A report of `preflight check`; - is stdin.")]


@app.command()
def timeout(
    params: Params = None,
    dtype: DtypeOption = Dtype.BF16,
    optimizer: OptimizerOption = Optimizer.ADAMW,
    strategy: StrategyOption = Strategy.DDP,
    save: SaveOption = Save.FULL,
    world_size: WorldSize = None,
    checkpoint_dir: Directory = None,
    preprocess: Preprocess = None,
    evaluate: Evaluate = None,
    compile_time: Compile = None,
    lora: Lora = None,
    current: Current = None,
    report: ReportIn = None,
    json: JsonPath = None,
) -> None:
    """Say how long a collective of this job may wait, each term of the sum, and the line that each framework takes.

    Exit codes: 0 here it is, 1 no timeout that makes sense is long enough, 2 usage, 3 the directory could not be tried.
    """
    from preflight.plan import job_text  # noqa: PLC0415  `--help` must not pay for it
    from preflight.recommend.frameworks import DISTRIBUTIONS  # noqa: PLC0415
    from preflight.recommend.timeout import safe_timeout  # noqa: PLC0415
    from preflight.recommend.timeout_words import NOT_TO_RAISE, unmeasured  # noqa: PLC0415
    from preflight.recommend.timings import nccl_settings, timings  # noqa: PLC0415
    from preflight.render.json_document import render_timeout_json  # noqa: PLC0415
    from preflight.render.timeout import render_timeout  # noqa: PLC0415
    from preflight.system.installed import installed_versions  # noqa: PLC0415

    check_outputs(*([json] if json not in (None, STDOUT) else []))
    seconds = {
        name: 0.0 if text is None else job_text.parse_duration_s(text, f"--{name}")
        for name, text in (("preprocess", preprocess), ("eval", evaluate), ("compile", compile_time))
    }
    current_s = None if current is None else job_text.parse_duration_s(current, "--current")
    ranks = None if world_size is None else job_text.parse_world_size(world_size)
    share = None if lora is None else job_text.parse_lora_share(lora)
    count = None if params is None else job_text.parse_params(params)
    seen = None if report is None else _report(report)
    job = Job(
        params=count, dtype=dtype, optimizer=optimizer, strategy=strategy, save=save, lora_share=share,
        world_size=ranks or (seen.world_size if seen else 0) or 1,
        preprocess_s=seconds["preprocess"], eval_s=seconds["eval"], compile_s=seconds["compile"],
    )  # fmt: skip
    storage = None if checkpoint_dir is None else _measure(checkpoint_dir, min(job.world_size, MOST_WRITERS))
    settings = nccl_settings(seen.nodes[0]) if seen and seen.nodes else dict(os.environ)
    measured = timings(seen.trials if seen else None, seen.world_size if seen else 0, storage, settings)
    safe = safe_timeout(job, measured, current_s, installed_versions(DISTRIBUTIONS))
    print_result(
        json,
        lambda: render_timeout_json(safe, job, measured, storage),
        lambda: render_timeout(safe, NOT_TO_RAISE, style(), gaps=unmeasured(measured)),
    )
    is_unknown = storage is not None and isinstance(measured.write_one_bytes_per_s, Gap)
    raise typer.Exit(1 if not safe.is_enough else 3 if is_unknown else 0)


def _report(path: str) -> Report:
    from preflight.plan.report_text import parse_report  # noqa: PLC0415

    return parse_report(read_input(path), path)


def _measure(directory: str, writers: int) -> StorageSpeed:
    """Try the directory, with a line of progress where a person looks on."""
    from preflight.cli.measuring import ShareShown  # noqa: PLC0415
    from preflight.probe.storage import measure_storage  # noqa: PLC0415

    shown = ShareShown(f"trying {directory}")
    try:
        return measure_storage(directory, writers, STORAGE_BUDGET_S, shown.show)
    finally:
        shown.clear()
