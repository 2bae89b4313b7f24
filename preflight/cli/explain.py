"""`preflight explain`: find out from the logs why a run ended."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Sequence

import typer

from preflight.cli.explain_options import ExplainOptions
from preflight.cli.output import PROGRAM, check_outputs, detail_of, print_result, refuse_stdout, style
from preflight.errors import PreflightError
from preflight.explain.explain_files import STUCK_FILE, explain_paths
from preflight.explain.linear_patterns import HAS_RE2
from preflight.explain.stuck_answer import StuckAnswer, read_stuck
from preflight.show.explain import explain_page, render_explanation_env
from preflight.show.json_document import render_json
from preflight.system.files import write_atomically
from preflight.system.own_command import run_own
from preflight.system.streams import to_stderr

SMALL_BYTES = 500_000  # 3 s without google-re2


def explain(asked: ExplainOptions) -> None:
    """Run `preflight explain`: print why a run ended, and exit with the result's exit code.

    With `--env-out`, also write the settings that help against the cause.
    """
    refuse_stdout("--env-out", asked.env_out)
    check_outputs(asked.env_out, asked.json)
    if not HAS_RE2 and not _are_small(asked.logs):
        to_stderr(f"{PROGRAM}: google-re2 is not installed, so logs take many times as long: pip install google-re2\n")
    explanation = explain_paths(asked.logs, tuple(filter(None, map(_answer_of_nodes, asked.logs))))
    if asked.env_out is not None:
        write_atomically(asked.env_out, render_explanation_env(explanation))
    shown = explain_page(explanation).shown(detail_of(asked.verbose, asked.quiet), style())
    print_result(asked.json, lambda: render_json(explanation), lambda: shown)
    raise typer.Exit(explanation.exit_code)


def _are_small(logs: Sequence[str]) -> bool:
    """Return whether the logs are files that have at most SMALL_BYTES together.

    Logs of this size are read in seconds.
    """
    return all(map(os.path.isfile, logs)) and sum(map(os.path.getsize, logs)) <= SMALL_BYTES


def _answer_of_nodes(folder: str) -> StuckAnswer | None:
    """Return the result of `preflight stuck --merge` for the evidence in a folder of logs.

    `stuck --out` wrote this evidence. Return None if the folder contains no evidence. `stuck` runs as a separate
    process, because `explain` imports no module of `stuck`.
    """
    if not os.path.isdir(folder) or not any(map(STUCK_FILE.search, os.listdir(folder))):
        return None
    with contextlib.suppress(PreflightError):
        judged = run_own(["stuck", "--merge", folder, "--json", "-"]).stdout
        return read_stuck(f"preflight stuck --merge {shlex.quote(folder)}", judged)
    return None
