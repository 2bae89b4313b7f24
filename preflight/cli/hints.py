"""Guess what the user meant by a wrong command line, for a hint in the error message."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence

EXTRA = re.compile(r"extra arguments?(?:\(s\))? \((.{1,200})\)$")
NO_OPTION = re.compile(r"No such option: (-{1,2}[\w-]{1,40})")
NO_COMMAND = re.compile(r"No such command '(.{1,200}?)'")
MISSING = re.compile(r"Missing (?:argument|option)")
# A word without an option, by its form, and the option that takes it.
ALONE = (
    (re.compile(r"\d[\d,-]{0,60}"), "--gpus"),
    (re.compile(r"(?:/\S+)?/?\S*report\S*\.json"), "--report"),
    (re.compile(r"\d[\d.]*[BMbm]"), "--params"),
    (re.compile(r"quick|standard|burn"), "--profile"),
)
PROGRAMS = re.compile(
    r"(?:\S*/)?(?:python[\d.]*|torchrun|accelerate|deepspeed|srun|mpirun|bash|\S+\.(?:py|sh))(?: .*)?"
)
OptionsOf = Callable[[str], Collection[str]]


def hint(message: str, command: str, typed: Sequence[str], examples: Mapping[str, str], options_of: OptionsOf) -> str:
    """Return a hint on what the user probably meant by `typed`, or "" if there is no likely guess.

    The hint begins with a semicolon.
    """
    # `message` is the error message of the command line. `command` is "" if no command was recognized. `examples` has
    # one example command line for each command. `options_of` returns the options of a command.
    said = _meant(message, command, list(typed), examples, options_of)
    return f"; {said}" if said else ""


def _meant(message: str, command: str, typed: list[str], examples: Mapping[str, str], options_of: OptionsOf) -> str:
    if found := EXTRA.search(message):
        return _alone(found[1], command, options_of(command))
    if found := NO_OPTION.match(message):
        return _elsewhere(found[1], command, typed, examples, options_of)
    if (found := NO_COMMAND.match(message)) and os.path.exists(found[1]):
        return f"did you mean `preflight explain {shlex.quote(found[1])}`?"
    if found and PROGRAMS.fullmatch(found[1]):
        return _as_job(shlex.join(typed))
    if MISSING.match(message) and command in examples:
        return f"such as `{examples[command]}`"
    return ""


def _alone(values: str, command: str, options: Collection[str]) -> str:
    """Return a hint for a value that was given without its option, or "" if no option fits.

    For `check 0,1`, the hint is --gpus.
    """
    for look, option in ALONE:
        if look.fullmatch(values) and option in options:
            return f"did you mean {option} {values}?"
    if PROGRAMS.fullmatch(values) and command == "check":
        return _as_job(values)
    return ""


def _as_job(line: str) -> str:
    """Return a hint to start the command line `line` as a job with `preflight run`.

    `preflight run` checks the node before the job starts.
    """
    is_script = line.split(maxsplit=1)[0].endswith(".py")
    return f"did you mean `preflight run -- {'python ' * is_script}{line}`?"


def _elsewhere(option: str, command: str, typed: list[str], examples: Mapping[str, str], options_of: OptionsOf) -> str:
    """Return a hint for an option that the command does not take.

    The hint says where in the command line the option belongs, how the option is spelled, or which commands take the
    option.
    """
    if not command:
        later = next((each for each in typed if each in examples), "")
        if later and option in options_of(later):
            before = typed[: typed.index(later)]
            after = typed[len(before) + 1 :]
            return f"put options after the command: `preflight {shlex.join([later, *before, *after])}`"
    long = next((each.partition("=")[0] for each in typed if each.startswith(option)), "")
    if len(option) == 2 and f"-{long}" in options_of(command or "check"):
        return f"did you mean -{long}?"
    if option.startswith("--"):
        takes = [name for name in examples if name != command and option in options_of(name)]
        if takes:
            return f"{option} is an option of {', '.join(takes)}"
    return ""
