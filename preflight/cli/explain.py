"""`preflight explain`: what ended a run, from its logs."""

from __future__ import annotations

import typer

from preflight.cli.options import JsonPath, Logs, UnmeasuredEnv
from preflight.cli.output import STDOUT, check_outputs, print_result, style
from preflight.cli.program import app
from preflight.system.files import write_atomically


@app.command()
def explain(logs: Logs, json: JsonPath = None, env_out: UnmeasuredEnv = None) -> None:
    """Name what really ended a failed or hung run, from its logs: the first failure, not its consequences.

    Exit codes: 0 nothing failed, 1 a cause was named, 2 usage, 3 not enough evidence.
    """
    from preflight.explain.read import explain_paths  # noqa: PLC0415
    from preflight.render.explain import render_explanation, render_explanation_env  # noqa: PLC0415
    from preflight.render.json_document import render_json  # noqa: PLC0415

    check_outputs(env_out, *([json] if json not in (None, STDOUT) else []))
    explanation = explain_paths(logs)
    if env_out is not None:
        write_atomically(env_out, render_explanation_env(explanation))
    print_result(json, lambda: render_json(explanation), lambda: render_explanation(explanation, style()))
    raise typer.Exit(explanation.exit_code)
