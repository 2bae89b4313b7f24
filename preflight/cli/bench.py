"""`preflight bench`: collectives only."""

from __future__ import annotations

import typer

from preflight.cli.options import (
    Backend,
    Deadline,
    Gpus,
    JsonPath,
    Nproc,
    ProfileOption,
    StageLimit,
    check_seconds,
)
from preflight.cli.output import STDOUT, check_outputs, print_result, say_where, style
from preflight.cli.program import app
from preflight.cli.running import run
from preflight.model.profile import Profile


@app.command()
def bench(
    gpus: Gpus = None,
    nproc: Nproc = None,
    backend: Backend = None,
    profile: ProfileOption = Profile.STANDARD,
    deadline: Deadline = None,
    json: JsonPath = None,
    stage_limit: StageLimit = None,
) -> None:
    """Time every collective under the default settings and print nccl-tests' table."""
    from preflight import app as application  # noqa: PLC0415
    from preflight.model.collective import Collective  # noqa: PLC0415
    from preflight.render.bench import render_bench  # noqa: PLC0415
    from preflight.render.json_document import render_json  # noqa: PLC0415

    check_seconds("--deadline", deadline)
    check_seconds("--stage-limit", stage_limit)
    check_outputs(*([json] if json not in (None, STDOUT) else []))
    request = application.Request(
        gpus=gpus, nproc=nproc, backend=backend, profile=profile, deadline_s=deadline, stage_limit_s=stage_limit,
        collectives=tuple(Collective), default_only=True,
    )  # fmt: skip
    checked = run(request, None)
    print_result(json, lambda: render_json(checked.report), lambda: render_bench(checked.report, style()))
    say_where(checked.run_dir)
    raise typer.Exit(checked.report.exit_code)
