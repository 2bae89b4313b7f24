"""`preflight explain`: what ended a run, from its logs."""

from __future__ import annotations

from typing import Annotated

import typer

from preflight.cli.options import JsonPath, valued
from preflight.cli.output import check_outputs, print_result, style
from preflight.explain.explain_files import explain_paths
from preflight.render.explain import render_explanation, render_explanation_env
from preflight.render.json_document import render_json
from preflight.system.files import write_atomically

Logs = Annotated[
    list[str],
    typer.Argument(metavar="LOG...", help="Logs or folders of one run: plain, gzip, bzip2, zstd, xz; - is stdin."),
]
UnmeasuredEnv = Annotated[
    str | None, valued("PATH", "Write the settings of a cause FOUND or LIKELY, untried.", "--env-out")
]


def explain(logs: Logs, json: JsonPath = None, env_out: UnmeasuredEnv = None) -> None:
    """Name what really ended a failed or hung run, from its logs: the first failure, not its consequences.

    Exit codes: 0 nothing failed, 1 a cause was named, 2 usage, 3 not enough evidence.
    """
    check_outputs(env_out, json)
    explanation = explain_paths(logs)
    if env_out is not None:
        write_atomically(env_out, render_explanation_env(explanation))
    print_result(json, lambda: render_json(explanation), lambda: render_explanation(explanation, style()))
    raise typer.Exit(explanation.exit_code)
