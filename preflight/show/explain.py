"""The result of `preflight explain` as a page and as an env file."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.explanation import (
    Confidence,
    Consequence,
    ExplainVerdict,
    Explanation,
    NamedCause,
    ProcessEnd,
    Quote,
    SourceRead,
)
from preflight.model.units import capitalized, counted, numbers_text
from preflight.show.document import BLANK, Block, Code, Text, answer_line, bullet, grouped, listed, section
from preflight.show.screen import ALL, Page
from preflight.show.text import clean, line

FOUND = {Confidence.HIGH: "FOUND", Confidence.MEDIUM: "LIKELY", Confidence.LOW: "SYMPTOM ONLY"}
CONFIDENCE = {
    Confidence.HIGH: "Confidence: high",
    Confidence.MEDIUM: "Confidence: medium",
    Confidence.LOW: "Confidence: low",
}
HEAD = {
    ExplainVerdict.HEALTHY: ("NOTHING FAILED", "green"),
    ExplainVerdict.NOT_ENOUGH_EVIDENCE: ("NOT ENOUGH EVIDENCE", "yellow"),
    ExplainVerdict.UNFINISHED: ("STILL RUNNING, OR CUT", "yellow"),
}
EVIDENCE_LINES = 3
SCREEN_LINES = 2  # of it on one screen: one may be a consequence; two that agree convince
COMMENT = "   # "  # behind a command
TIMELINE_LINES = 8
RANKS = 6
SEVERAL = 2
PROCESSES = 8
NAME = 48
FILES = 4  # that could not be read for one reason
REASONS = 8


def explain_page(explanation: Explanation) -> Page:
    """Return the page: what ended the run, the log lines that prove it, and the next step."""
    causes, sources = explanation.causes, explanation.sources
    word, tone = (FOUND[causes[0].confidence], "red") if causes else HEAD[explanation.verdict]
    shown = {(quote.source, quote.line) for quote in explanation.unusual}
    said = [quote for quote in explanation.timeline if (quote.source, quote.line) not in shown] if not causes else []
    quotes = [
        *explanation.unusual[:SCREEN_LINES],
        *(causes[0].evidence[:SCREEN_LINES] if causes else said[-SCREEN_LINES:]),
    ]
    quotes = quotes[: SCREEN_LINES + bool(explanation.unusual)]
    groups = [_short_quote(quote, sources) for quote in quotes]
    groups += [[step] for step in _short_steps(causes[0])] if causes else []
    groups += [[Text(each, 2, 4, most_lines=2)] for each in (*explanation.notes, *explanation.capture_next)]
    groups += [[Text(f"else: {each.verdict}", 2, 8, most_lines=1)] for each in causes[1:3]]
    return Page(
        answer_line(word, tone, explanation.summary),
        [Text(word, tone=tone), Text(explanation.summary, most_lines=4)],
        groups,
        [("Next", _next(explanation)), ("Logs", _read(sources))],
        lambda: [Text(word, tone=tone), Text(explanation.summary), *_whole(explanation)],
    )


def _whole(explanation: Explanation) -> list[Block]:
    causes, sources = explanation.causes, explanation.sources
    processes = _processes(explanation)
    firsts = {(row.first.source, row.first.line) for row in explanation.processes if row.first and processes}
    moments = [quote for quote in explanation.timeline if (quote.source, quote.line) not in firsts]
    moments = moments[:TIMELINE_LINES] if causes and (moments[1:] or processes) else []
    last = () if causes else explanation.timeline
    about = "About the timeout" if any("timeout" in text for text in explanation.notes) else "Note"
    if not causes:
        about = "What would tell more"
    return [
        *section(
            "Healthy runs print no such line", *(p for quote in explanation.unusual for p in _quote(quote, sources))
        ),
        *(_cause(causes[0], sources) if causes else []),
        *section("The last lines that matter", *(part for quote in last for part in _quote(quote, sources))),
        *section("What happened, in order", *(_moment(quote, sources) for quote in moments)),
        *processes,
        *section("Also in the log, but not the cause", *map(_consequence, explanation.consequences)),
        *section("If that is not it, look next at", *(bullet(f"{c.verdict} [{c.cause}]") for c in causes[1:4])),
        *section(about, *map(bullet, explanation.notes)),
        *section("To know more next time, capture", *(part for s in explanation.capture_next for part in _code(s))),
        BLANK,
        *_footer(sources),
    ]


def render_explanation_env(explanation: Explanation) -> str:
    """Return the text of an env file with untried settings for the cause that the log shows."""
    lines = [
        "# untried: `preflight check` tries them",
        "# Written by preflight explain from a log: nothing was measured.",
    ]
    cause = explanation.causes[0] if explanation.causes else None
    if cause is None or not cause.env:
        name = cause.cause if cause else explanation.verdict.value
        return "\n".join([*lines, f"# {name}: no environment variable helps here."]) + "\n"
    lines.append(f"# {FOUND[cause.confidence]}: {cause.cause}. {_ascii(cause.verdict)}")
    if cause.confidence is Confidence.LOW:
        names = ", ".join(name for name, _ in cause.env)
        lines.append(f"# Other causes leave the same log, so nothing is set. These variables may help: {names}.")
        return "\n".join(lines) + "\n"
    for name, value in cause.env:
        lines += [f"# confirm the cause with: {_ascii(cause.confirm_with)}", f"export {name}='{value}'"]
    return "\n".join(lines) + "\n"


def _cause(cause: NamedCause, sources: Sequence[SourceRead]) -> list[Block]:
    quotes = (part for quote in cause.evidence[:EVIDENCE_LINES] for part in _quote(quote, sources))
    steps: list[Block] = []
    number = 0
    for step in cause.remedy.split("\n"):
        if step.startswith("    "):
            steps += _code(step.strip(), indent=7)
            continue
        number += 1
        steps.append(Text(step, 2, 5, label=f"{number}. "))
    others = " Other causes leave the same log." if cause.confidence is Confidence.LOW else ""
    return [
        BLANK,
        Text(f"{CONFIDENCE[cause.confidence]} ({cause.cause}): {cause.because}.{others}"),
        *section("The lines that show it", *quotes),
        *section("What to do", *steps),
        *section("To confirm the cause", *_code(cause.confirm_with)),
    ]


def _where(quote: Quote, sources: Sequence[SourceRead]) -> str:
    """Return the line number of a quoted line. If there are several files, include the file name."""
    return f"{_short_name(quote.source)}:{quote.line}" if len(sources) > 1 else f"line {quote.line}"


def _short_name(name: str) -> str:
    """Return a file name, shortened to at most NAME (48) characters.

    `...` replaces the middle of a long name, because the rank, the pid and the suffix are at the end.
    """
    return name if len(name) <= NAME else f"{name[: NAME // 4]}...{name[-(NAME - NAME // 4 - 3) :]}"


def _quote(quote: Quote, sources: Sequence[SourceRead]) -> list[Block]:
    text = " ".join(clean(quote.text).split())
    return [
        Text(f"{_where(quote, sources)}: {quote.means}", 2, limit=lambda width: width - 2),
        Text(text, 4, label="| ", limit=lambda width: max(20, (width - 6) * 3)),
    ]


def _moment(quote: Quote, sources: Sequence[SourceRead]) -> Text:
    who = ("rank " + quote.rank if quote.rank else "") + (f" on {quote.host}" if quote.host else "")
    head = "  ".join(part for part in (quote.time, who.strip(), _where(quote, sources)) if part)
    return Text(quote.means, 2, 6, head=f"{head}:")


def _processes(explanation: Explanation) -> list[Block]:
    """Return a table of the processes, or [] if there are fewer than SEVERAL processes.

    A row has the first abnormal line of a process, and how the process ended.
    """
    rows: dict[tuple[str, str, str], list[ProcessEnd]] = {}
    for row in explanation.processes:
        rows.setdefault((row.first.means if row.first else "", row.waited_for, row.ended), []).append(row)
    if len(explanation.processes) < SEVERAL:
        return []
    head = "First abnormal line of each process"
    if not explanation.processes_in_order:
        head = "First abnormal line of each process (in unknown order, because the logs have no common clock)"
    parts = [_process(alike, explanation.sources) for alike in rows.values()]
    more = [Text(f"{len(parts) - PROCESSES} more in --json", 2)] if parts[PROCESSES:] else []
    return section(head, *parts[:PROCESSES], *more)


def _process(alike: Sequence[ProcessEnd], sources: Sequence[SourceRead]) -> Text:
    """Return a line on one process, or on several processes with the same first line and the same end."""
    row, ranks = alike[0], [int(each.rank) for each in alike if each.rank.isdigit()]
    who = f"rank{'s' * (len(ranks) > 1)} {numbers_text(ranks)}" if ranks else _short_name(row.process)
    if not ranks and alike[1:]:
        who += f" and {len(alike) - 1} similar"
    first = "" if row.ended else "no line of it"
    if row.first:
        when = f"{row.first.time} " if row.first.time else ""
        first = f"{'first at ' if alike[1:] else ''}{when}{_where(row.first, sources)}, {row.first.means}"
    parts = (first, row.waited_for and f"waited for {row.waited_for}", row.ended)
    return Text("; ".join(filter(None, parts)), 2, 6, head=f"{who}:")


def _consequence(consequence: Consequence) -> Text:
    ranks = listed(consequence.ranks, RANKS)
    who = f" (rank{'s' if len(consequence.ranks) > 1 else ''} {ranks})" if consequence.ranks else ""
    return bullet(f"{consequence.what}{who}. {capitalized(consequence.why)}")


def _code(text: str, indent: int = 4) -> list[Block]:
    """Return a command as a user types it, with the command's comment above.

    A command that is wider than the terminal is wrapped.
    """
    command, _, comment = text.partition(COMMENT)
    notes = [Text(comment, indent, label="# ")] if comment else []
    return [*notes, Code((command,), indent)]


def _footer(sources: Sequence[SourceRead]) -> list[Block]:
    """Return blocks that say how much was read, and which files could not be read, grouped by reason."""
    read = [source for source in sources if source.size_bytes or not source.note]
    size, lines = sum(source.size_bytes for source in read), sum(source.lines for source in read)
    names = read[0].name if len(read) == 1 else f"{len(read)} logs"
    by_reason = grouped((source.note, source.name) for source in sources if source.note)
    notes = [bullet(f"{clean(listed(files, FILES))}: {clean(why)}") for why, files in by_reason.items()]
    shown = notes[:REASONS] + ([bullet(f"{len(notes) - REASONS} more reasons in --json")] if notes[REASONS:] else [])
    return [
        Text(
            f"Input: {names}, {counted(lines, 'line')}, {_size(size)}."
            + (" Not read, or only in part:" if shown else "")
        ),
        *shown,
    ]


def _size(size_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes} bytes"


def _ascii(text: str) -> str:
    return " ".join(clean(text).encode("ascii", "replace").decode("ascii").split())


def _short_quote(quote: Quote, sources: Sequence[SourceRead]) -> list[Block]:
    place = _where(quote, sources)
    return [
        Text(f"{place}: {quote.means}", 2, 4, most_lines=1),
        Text(line(quote.text), 4, label="| ", tone="dim", most_lines=2, shown=line(quote.match)),
    ]


def _short_steps(cause: NamedCause) -> list[Text]:
    """Return the steps to take, without the lines of code below a step."""
    steps = [step for step in cause.remedy.replace(":\n    ", ".\n    ").split("\n") if not step.startswith("    ")]
    return [Text(step, 2, 5, label=f"{i}. ", most_lines=3) for i, step in enumerate(steps, 1)]


def _next(explanation: Explanation) -> str:
    match explanation.verdict:
        case ExplainVerdict.CAUSE_NAMED:
            return f"confirm the cause: {explanation.causes[0].confirm_with.partition(COMMENT)[0]}"
        case ExplainVerdict.HEALTHY:
            return "nothing to do"
        case ExplainVerdict.UNFINISHED:
            return "if the job hangs, run `preflight stuck` on its nodes; if the log was cut, get the whole log"
        case ExplainVerdict.NOT_ENOUGH_EVIDENCE:
            return (
                "if the job still runs, run `preflight stuck` on its nodes; if the job has ended, give the end of "
                "every rank's log to `preflight explain`"
            )


def _read(sources: Sequence[SourceRead]) -> str:
    """Return a text on how many logs were read, and how many logs were not read completely."""
    names = sources[0].name if len(sources) == 1 else f"{len(sources)} logs"
    notes = sum(bool(source.note) for source in sources)
    return f"{names}{f'; {notes} not read completely' if notes else ''} ({ALL})"
