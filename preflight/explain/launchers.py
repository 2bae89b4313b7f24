"""Instructions for the launcher in use: how to set a variable, raise a limit or get another log."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from preflight.model.engine_options import CAUSES, Engine, EngineOption, options_for
from preflight.model.launchers import LAUNCHERS, Launcher

LOG_WORDS = tuple((each.name, each.log_words) for each in LAUNCHERS if each.log_words)


@dataclass(frozen=True, slots=True)
class Need:
    """An action that some repair steps require, such as setting an environment variable.

    The function `way` returns the instruction for this action with a launcher, or "" if the launcher can't do the
    action.
    """

    # `asked_by` is a pattern that finds the repair steps.

    asked_by: re.Pattern[str]
    way: Callable[[Launcher], str]


VARIABLES = Need(re.compile(r"\b(?:export )?[A-Z][A-Z0-9_]{5,60}="), lambda launcher: launcher.sets_variables)
LIMITS = Need(re.compile(r"\bulimit\b|memlock|--shm-size|/dev/shm"), lambda launcher: launcher.sets_limits)
OTHER_LOGS = Need(
    re.compile(r"\b[Ll]ogs? of (?:rank|that|the)\b|--log-dir|[Gg]et the log"), lambda launcher: launcher.keeps_logs
)


def launcher_of(match: str) -> str:
    """Return the name of the launcher that the log text `match` indicates, or "" if the launcher is unknown."""
    return next((name for name, words in LOG_WORDS if re.search(words, match)), "")


def way(need: Need, launchers: Iterable[str]) -> tuple[str, ...]:
    """Return the instruction for the action `need`, for the most specific of `launchers`.

    Return () if no launcher has an instruction for the action.
    """
    used = set(launchers)
    return next(((need.way(each),) for each in LAUNCHERS if each.name in used and need.way(each)), ())


def with_launcher(steps: Iterable[str], launchers: Iterable[str], *, sets_variables: bool) -> tuple[str, ...]:
    """Return `steps`, followed by instructions for the launcher in use.

    If `sets_variables` is true, the instruction for variables is added even if no step mentions a variable.
    """
    # There is one instruction for each action (`Need`) that the steps require.
    steps, used = tuple(steps), frozenset(launchers)
    asked = [need for need in (VARIABLES, LIMITS, OTHER_LOGS) if any(map(need.asked_by.search, steps))]
    if sets_variables and VARIABLES not in asked:
        asked.insert(0, VARIABLES)
    return (*steps, *(line for need in asked for line in way(need, used)))


def options_of_engines(cause: str, launchers: Collection[str]) -> tuple[EngineOption, ...]:
    """Return the options of serving engines that avoid the cause `cause` (an id).

    `launchers` names the serving engines in use.
    """
    faults = [CAUSES[cause]] if cause in CAUSES else []
    return tuple(row for engine in Engine if engine.value in launchers for row in options_for(engine, faults))
