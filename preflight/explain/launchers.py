"""The ways to carry out a remedy's step with the launcher in use: set a variable, raise a limit, get another log."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from preflight.model.engine_options import CAUSES, Engine, EngineOption, options_for
from preflight.model.launchers import LAUNCHERS, Launcher

LOG_WORDS = tuple((each.name, each.log_words) for each in LAUNCHERS if each.log_words)


@dataclass(frozen=True, slots=True)
class Need:
    """An action that a remedy's step may require, such as to set a variable.

    `asked_by` is a pattern for the steps that require this action. `way` returns how a launcher does it; "" if unknown.
    """

    asked_by: re.Pattern[str]
    way: Callable[[Launcher], str]


VARIABLES = Need(re.compile(r"\b(?:export )?[A-Z][A-Z0-9_]{5,60}="), lambda launcher: launcher.sets_variables)
LIMITS = Need(re.compile(r"\bulimit\b|memlock|--shm-size|/dev/shm"), lambda launcher: launcher.sets_limits)
OTHER_LOGS = Need(
    re.compile(r"\b[Ll]ogs? of (?:rank|that|the)\b|--log-dir|[Gg]et the log"), lambda launcher: launcher.keeps_logs
)


def launcher_of(match: str) -> str:
    """Return the name of the launcher to which `match`, a text from the log, belongs; "" if it belongs to none."""
    return next((name for name, words in LOG_WORDS if re.search(words, match)), "")


def way(need: Need, launchers: Iterable[str]) -> tuple[str, ...]:
    """Return one instruction to meet `need` with the most specific of `launchers`; () if none has an instruction."""
    used = set(launchers)
    return next(((need.way(each),) for each in LAUNCHERS if each.name in used and need.way(each)), ())


def with_launcher(steps: Iterable[str], launchers: Iterable[str], *, sets_variables: bool) -> tuple[str, ...]:
    """Return `steps`, followed by one instruction for the launcher in use for each `Need` in the steps.

    `sets_variables` adds the instruction for variables even if no step mentions a variable.
    """
    steps, used = tuple(steps), frozenset(launchers)
    asked = [need for need in (VARIABLES, LIMITS, OTHER_LOGS) if any(map(need.asked_by.search, steps))]
    if sets_variables and VARIABLES not in asked:
        asked.insert(0, VARIABLES)
    return (*steps, *(line for need in asked for line in way(need, used)))


def options_of_engines(cause: str, launchers: Collection[str]) -> tuple[EngineOption, ...]:
    """Return the options that avoid `cause` (a cause's id) in the serving engines that `launchers` names."""
    faults = [CAUSES[cause]] if cause in CAUSES else []
    return tuple(row for engine in Engine if engine.value in launchers for row in options_for(engine, faults))
