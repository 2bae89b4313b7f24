"""The page of a command, which can be printed as one line, as one screen, or in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from preflight.model.finding import Finding, Severity
from preflight.show.console_writer import SEVERITIES, finish, lines_of
from preflight.show.document import BLANK, Block, Text
from preflight.show.text import Detail, Style, line

ROWS = 22  # of the 24 that a terminal has at least: the command is above, the prompt below
ALL = "-v shows all"
AGAIN = "repair the fault above, then rerun the same command"
TOLD = "do what the fix above says"


@dataclass(frozen=True, slots=True)
class Page:
    """The page of a command, which can be printed at three lengths."""

    answer: Text  # the line for -q; its label is the verdict
    head: Sequence[Block]  # of one screen
    groups: Sequence[Sequence[Block]]  # below the head, the most important first
    foot: Sequence[tuple[str, str]]  # names, each with a text
    whole: Callable[[], Sequence[Block]]
    is_one_line: bool = False  # the answer is all there is to say, unless everything is requested

    def shown(self, detail: Detail, style: Style) -> str:
        """Return the text of the page at the length `detail`."""
        match detail:
            case Detail.ALL:
                return finish(lines_of(self.whole(), style), style)
            case Detail.SCREEN if not self.is_one_line:
                return _fitted(self.head, self.groups, _foot(self.foot), style)
            case Detail.VERDICT | Detail.SCREEN:
                return finish([self.answer.label + line(self.answer.text)], style)


def _fitted(head: Sequence[Block], groups: Sequence[Sequence[Block]], foot: Sequence[Block], style: Style) -> str:
    """Return a page of at most ROWS lines.

    The page has all of `head` and `foot`. Between `head` and `foot`, the page has as many groups as fit.
    """
    above, below = lines_of(head, style), lines_of(foot, style)
    room = ROWS - len(above) - len(below) - 2  # an empty line, and what says how many are left out
    middle: list[str] = []
    for i, group in enumerate(groups):
        lines = lines_of(group, style)
        if len(middle) + len(lines) > room:
            middle += lines_of([Text(f"{len(groups) - i} more: {ALL}", 2, tone="dim")], style)
            break
        middle += lines
    gap = [""] if middle and middle[0] else []
    return finish([*above, *gap, *middle, *below], style)


def _foot(rows: Sequence[tuple[str, str]]) -> list[Block]:
    """Return the last lines of a screen: names, each with a text of at most three lines."""
    column = max(len(name) for name, _ in rows) + 2
    return [
        BLANK,
        *(Text(text, 0, column, label=name.ljust(column), label_tone="bold", most_lines=3) for name, text in rows),
    ]


def short(finding: Finding, headline: str = "") -> list[Block]:
    """Return a finding as a block of at most seven lines: the problem, the fix and the workaround.

    The problem is left out if `headline` contains the problem.
    """
    subject = "" if finding.problem.startswith(f"{finding.subject} ") else f"{finding.subject}: "
    text = finding.check + ("" if finding.problem in headline else f" · {subject}{finding.problem}")
    label = f"{finding.severity.name:<6}"
    found = Text(text, 0, 6, label=label, label_tone=SEVERITIES[finding.severity], most_lines=2)
    if finding.severity is Severity.INFO:
        return [found]
    steps = (("fix: ", finding.fix, 3), ("workaround: ", finding.workaround_apart, 2))
    return [found, *(Text(text, 6, 8, label=label, most_lines=most) for label, text, most in steps if text)]
