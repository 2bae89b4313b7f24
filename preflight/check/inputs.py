"""The files that a check is judged by: a policy, a baseline, the runs before this one."""

from __future__ import annotations

import os
from datetime import date

from preflight.errors import UsageError
from preflight.judge.check import all_checks
from preflight.judge.policy import parse_policy
from preflight.model.baseline import Baseline
from preflight.model.history import PastRun, parse_history
from preflight.model.input_limits import BASELINE, HISTORY, POLICY
from preflight.model.policy import Policy
from preflight.model.saved_report import load_baseline
from preflight.system.inputs import STDIN, read_input


def read_policy(path: str | None) -> Policy | None:
    """Return the policy of a TOML file, None where none is named; MalformedInput names what it can't say."""
    if path is None:
        return None
    names = {check.name for check in all_checks()}
    return parse_policy(read_input(path, POLICY), path, names, date.today().isoformat())


def read_baseline(path: str | None) -> Baseline | None:
    """Return what known-good nodes reach, None where no file is named."""
    return None if path is None else load_baseline(read_input(path, BASELINE), path)


def read_history(path: str | None) -> tuple[PastRun, ...] | None:
    """Return the runs of a file, none where it is yet to be made; None where no history is kept.

    UsageError where the file is no history, or can't be read.
    """
    if path is None:
        return None
    if path == STDIN or (os.path.exists(path) and not os.path.isfile(path)):
        raise UsageError(f"--history {path}: give a file; it is read, and written again")
    return parse_history(read_input(path, HISTORY), path) if os.path.exists(path) else ()
