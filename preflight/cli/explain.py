"""`preflight explain`: what ended a run, from its logs."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from preflight.cli.options import PRINTED, JsonPath, Quiet, Verbose, valued
from preflight.cli.output import Detail, check_outputs, detail_of, print_result, refuse_stdout, style
from preflight.explain.explain_files import explain_paths
from preflight.model.explanation import Explanation
from preflight.render.explain import render_explanation, render_explanation_env
from preflight.render.explain_screen import render_explain_screen, render_explain_verdict
from preflight.render.json_document import render_json
from preflight.render.stuck import render_stuck_in
from preflight.stuck.judge.answer import answer
from preflight.stuck.node_files import read_nodes
from preflight.system.files import write_atomically

Logs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG...",
        help="Logs, folders or archives (tar, zip) of one run: plain, gzip, bzip2, zstd, xz; - is stdin.",
    ),
]
UnmeasuredEnv = Annotated[
    str | None, valued("PATH", "Write the settings of a cause FOUND or LIKELY, untried.", "--env-out", group=PRINTED)
]


def explain(
    logs: Logs,
    json: JsonPath = None,
    env_out: UnmeasuredEnv = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Name what really ended a failed or hung run, from its logs: the first failure, not its consequences.

    Exit codes: 0 nothing failed, 1 a cause was named, 2 usage, 3 not enough evidence.
    """
    refuse_stdout("--env-out", env_out)
    check_outputs(env_out, json)
    explanation = explain_paths(logs)
    if env_out is not None:
        write_atomically(env_out, render_explanation_env(explanation))
    hang = _while_it_hung(logs)
    print_result(json, lambda: render_json(explanation), lambda: _page(explanation, detail_of(verbose, quiet)) + hang)
    raise typer.Exit(explanation.exit_code)


def _while_it_hung(paths: list[str]) -> str:
    """Return what `preflight stuck` saw of the run, whose files lie beside its logs; "" where there are none."""
    found = [(folder, read_nodes(folder)[0]) for folder in paths if os.path.isdir(folder)]
    return "".join(render_stuck_in(folder, answer(nodes), style()) for folder, nodes in found if nodes)


def _page(explanation: Explanation, detail: Detail) -> str:
    match detail:
        case Detail.VERDICT:
            return render_explain_verdict(explanation, style())
        case Detail.SCREEN:
            return render_explain_screen(explanation, style())
        case Detail.ALL:
            return render_explanation(explanation, style())
