"""The first screen of `preflight stuck`: the answer, what shows it, what to do first, which rank is where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from preflight.model.stuck import Culprit, StuckReport, StuckVerdict
from preflight.show.console_writer import finish
from preflight.show.document import BLANK, Block, Code, Text, answer_line, bullet
from preflight.show.screen import ALL, fitted, foot_of
from preflight.show.stuck import HEAD, rank_table
from preflight.show.text import Style, line

MOST_ACTIVITIES = 3
ELSE = {
    StuckVerdict.NOT_STUCK: "nothing to do; look again in a minute where it still seems to hang",
    StuckVerdict.UNKNOWN: "give the --pid of the job's launcher or of a rank, as its user, or as root with --user NAME",
    StuckVerdict.STUCK: "-v shows where every rank stands",
}


def render_stuck_screen(report: StuckReport, style: Style, written: Sequence[str] = ()) -> str:
    """Return what fits on one screen, the most important first; the rest is counted, and `-v` shows it."""
    word, tone = HEAD[report.verdict]
    head = answer_line(word, tone, report.summary)
    groups: list[list[Block]] = []
    for culprit in report.culprits:
        groups += [[_short(bullet(each))] for each in culprit.evidence]
        first = culprit is report.culprits[0]  # its first step is what comes next
        groups += [_step(each) for each in _steps(culprit)[first:]]
    groups += [[BLANK, rank_table(report.places)]] if report.places else []
    groups += [[_short(Text(each, 2, 4, label="not seen: "))] for each in report.not_seen]
    groups += [[_short(bullet(each))] for each in report.hints]
    files = [("Written", ", ".join(written))] if written else []
    rows = [("Next", _next(report)), ("Ranks", f"{_ranks(report)} ({ALL})"), *files]
    return fitted([_short(head, 4)], groups, foot_of(rows), style)


def render_stuck_verdict(report: StuckReport, style: Style) -> str:
    """Return the answer on one line, for `-q`."""
    return finish([f"{HEAD[report.verdict][0]}  {line(report.summary)}"], style)


def _short(text: Text, most_lines: int = 2) -> Text:
    return Text(text.text, text.indent, text.hang, text.label, label_tone=text.label_tone, most_lines=most_lines)


def _steps(culprit: Culprit) -> list[list[str]]:
    """Return each step with the commands below it."""
    steps: list[list[str]] = []
    for each in culprit.steps:
        if each.startswith("    ") and steps:
            steps[-1].append(each.strip())
        else:
            steps.append([each])
    return steps


def _step(step: list[str]) -> list[Block]:
    return [_short(Text(step[0], 2, 4, label="> "), 3), *([Code(tuple(step[1:]), 4)] if step[1:] else [])]


def _next(report: StuckReport) -> str:
    steps = [step for culprit in report.culprits for step in _steps(culprit)]
    if not steps:
        return ELSE[report.verdict]
    sentence, *commands = steps[0]
    return f"{sentence.rstrip('.:')}: {commands[0]}" if commands else sentence


def _ranks(report: StuckReport) -> str:
    counts = Counter(place.doing or place.activity.value.replace("_", " ") for place in report.places)
    shown = [f"{count} in {name}" for name, count in counts.most_common(MOST_ACTIVITIES)]
    more = len(counts) - len(shown)
    hosts = len(report.nodes)
    seconds = max((node.watched_s for node in report.nodes), default=0.0)
    if not shown:
        return "none"
    where = f"on {hosts} node{'' if hosts == 1 else 's'}, watched for {seconds:.0f} s"
    return f"{len(report.places)} {where}: {', '.join(shown)}{f' and {more} more' if more > 0 else ''}"
