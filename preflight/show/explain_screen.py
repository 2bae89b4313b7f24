"""The first screen of `preflight explain`: what ended the run, the lines that show it, what to do first."""

from __future__ import annotations

from preflight.model.explanation import ExplainVerdict, Explanation, NamedCause, Quote
from preflight.show.console_writer import finish
from preflight.show.document import Block, Text
from preflight.show.explain import answer_of, where
from preflight.show.screen import ALL, fitted, foot_of
from preflight.show.text import Style, line

EVIDENCE_LINES = 2  # one may be a consequence; two that agree convince
COMMENT = "   # "  # behind a command


def render_explain_screen(explanation: Explanation, style: Style) -> str:
    """Return what fits on one screen, the most important first; the rest is counted, and `-v` shows it."""
    word, tone = answer_of(explanation)
    causes = explanation.causes
    quotes = causes[0].evidence[:EVIDENCE_LINES] if causes else explanation.timeline[-EVIDENCE_LINES:]
    groups = [_quote(quote, explanation) for quote in quotes]
    groups += [[step] for step in _steps(causes[0])] if causes else []
    groups += [[Text(each, 2, 4, most_lines=2)] for each in (*explanation.notes, *explanation.capture_next)]
    groups += [[Text(f"else: {each.verdict}", 2, 8, most_lines=1)] for each in causes[1:3]]
    rows = [("Next", _next(explanation)), ("Read", _read(explanation))]
    return fitted([Text(word, tone=tone), Text(explanation.summary, most_lines=4)], groups, foot_of(rows), style)


def render_explain_verdict(explanation: Explanation, style: Style) -> str:
    """Return the answer on one line, for `-q`."""
    return finish([f"{answer_of(explanation)[0]}  {line(explanation.summary)}"], style)


def _quote(quote: Quote, explanation: Explanation) -> list[Block]:
    place = where(quote, explanation.sources)
    return [
        Text(f"{place}: {quote.means}", 2, 4, most_lines=1),
        Text(line(quote.text), 4, label="| ", tone="dim", most_lines=2),
    ]


def _steps(cause: NamedCause) -> list[Text]:
    """Return what to do, without the lines of code below a step."""
    steps = [step for step in cause.remedy.split("\n") if not step.startswith("    ")]
    return [Text(step, 2, 5, label=f"{i}. ", most_lines=3) for i, step in enumerate(steps, 1)]


def _next(explanation: Explanation) -> str:
    match explanation.verdict:
        case ExplainVerdict.CAUSE_NAMED:
            return f"confirm it: {explanation.causes[0].confirm_with.partition(COMMENT)[0]}"
        case ExplainVerdict.HEALTHY:
            return "nothing to do"
        case ExplainVerdict.UNFINISHED:
            return "if it hangs: `preflight stuck` on its nodes; if the log was cut: fetch the rest of it"
        case ExplainVerdict.NOT_ENOUGH_EVIDENCE:
            return "fetch the end of every rank's log, and give all of them to `preflight explain`"


def _read(explanation: Explanation) -> str:
    """Return how many logs were read, and whether all of each."""
    sources = explanation.sources
    names = sources[0].name if len(sources) == 1 else f"{len(sources)} logs"
    notes = sum(bool(source.note) for source in sources)
    return f"{names}{f'; {notes} not, or not whole' if notes else ''} ({ALL})"
