"""Helpers that create typer options, and the options that nearly every command has."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import typer

from preflight.model.parsing import parse_duration_s

# The groups of options in --help; "Output" is shown last.
TRIED, JUDGED, PRINTED = "Tests", "Verdict", "Output"
NODES, ELSEWHERE = "Several nodes", "Other machines"
ANSWERS_BACK = "-"  # the value of --on by which another preflight starts this one


# A `rare` option is shown by --help-all only.


def valued(metavar: str, what: str, *names: str, group: str | None = None, rare: bool = False) -> Any:
    """Return a typer option that takes a value.

    `metavar` is the value's name in the help, `what` the help text, and `group` the heading in --help.
    """
    # A `rare` option is shown by --help-all only.
    return typer.Option(*names, metavar=metavar, help=what, rich_help_panel=group, hidden=rare)


def timed(what: str, name: str, group: str | None = None, rare: bool = False) -> Any:
    """Return a typer option `name` that takes a duration such as 90, 90s, 5m or 1h30m.

    `what` is the help text of the option.
    """

    def parse(text: str) -> float:
        return parse_duration_s(text, name)

    return typer.Option(name, metavar="T", help=what, parser=parse, rich_help_panel=group, hidden=rare)


def choice(what: str, *names: str, group: str | None = None, metavar: str | None = None, rare: bool = False) -> Any:
    """Return a typer option that takes one of a few words, in upper or lower case.

    `what` is the help text of the option.
    """
    return typer.Option(
        *names, metavar=metavar, help=what, case_sensitive=False, rich_help_panel=group, hidden=rare
    )  # fmt: skip


def switch(what: str, *names: str, group: str | None = None, envvar: str | None = None, rare: bool = False) -> Any:
    """Return a typer option without a value.

    `what` is the help text of the option.
    """
    return typer.Option(*names, help=what, envvar=envvar, rich_help_panel=group, hidden=rare)


def words(kind: type[Enum]) -> str:
    """Return the values of the enum `kind`, separated by commas, for a help text."""
    return ", ".join(str(each.value) for each in kind)


Verbose = Annotated[
    bool,
    switch("Print everything instead of one screen.", "--verbose", "-v", group=PRINTED, envvar="PREFLIGHT_VERBOSE"),
]
Quiet = Annotated[bool, switch("Print only the verdict line.", "--quiet", "-q", group=PRINTED)]
JsonPath = Annotated[
    str | None, valued("PATH", "Write the result as JSON to PATH. Use - for stdout.", "--json", group=PRINTED)
]
