"""An explanation as a page, for somebody who has never heard of NCCL, and as an env file."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.explanation import (
    Confidence,
    Consequence,
    ExplainVerdict,
    Explanation,
    NamedCause,
    Quote,
    SourceRead,
)
from preflight.show.console_writer import page
from preflight.show.document import BLANK, Block, Code, Text, bullet, grouped, listed, section
from preflight.show.text import Style, clean

FOUND = {Confidence.HIGH: "FOUND", Confidence.MEDIUM: "LIKELY", Confidence.LOW: "SYMPTOM ONLY"}
CONFIDENCE = {
    Confidence.HIGH: "certain as far as a log can tell",
    Confidence.MEDIUM: "likely",
    Confidence.LOW: "possible; other causes would leave the same log",
}
HEAD = {
    ExplainVerdict.HEALTHY: ("NOTHING FAILED", "green"),
    ExplainVerdict.NOT_ENOUGH_EVIDENCE: ("NOT ENOUGH EVIDENCE", "yellow"),
    ExplainVerdict.UNFINISHED: ("STILL RUNNING, OR CUT", "yellow"),
}
EVIDENCE_LINES = 3
TIMELINE_LINES = 8
RANKS = 6
FILES = 4  # that could not be read for one reason
REASONS = 8


def answer_of(explanation: Explanation) -> tuple[str, str]:
    """Return the answer in words, and their colour."""
    causes = explanation.causes
    return (FOUND[causes[0].confidence], "red") if causes else HEAD[explanation.verdict]


def render_explanation(explanation: Explanation, style: Style) -> str:
    """Return the page that `preflight explain` prints."""
    causes, sources = explanation.causes, explanation.sources
    title, tone = answer_of(explanation)
    moments = explanation.timeline[:TIMELINE_LINES] if explanation.timeline[1:] and causes else ()
    last = () if causes else explanation.timeline
    about = "About the timeout" if any("timeout" in text for text in explanation.notes) else "Note"
    if not causes:
        about = "What would tell more"
    blocks: list[Block] = [
        Text(title, tone=tone),
        Text(explanation.summary),
        *(_cause(causes[0], sources) if causes else []),
        *section("The last lines that matter", *(part for quote in last for part in _quote(quote, sources))),
        *section("What happened, in order", *(_moment(quote, sources) for quote in moments)),
        *section("Also seen, and why it is not the cause", *map(_consequence, explanation.consequences)),
        *section("If that is not it, look next at", *(bullet(f"{c.verdict} [{c.cause}]") for c in causes[1:4])),
        *section(about, *map(bullet, explanation.notes)),
        *section("To know more next time, capture", *(part for s in explanation.capture_next for part in _code(s))),
        BLANK,
        *_footer(sources),
    ]
    return page(blocks, style)


def render_explanation_env(explanation: Explanation) -> str:
    """Return the settings that the cause justifies, each marked as untried; none where only a symptom was seen."""
    lines = [
        "# untried: `preflight check` tries them",
        "# Written by preflight explain from a log: nothing was measured.",
    ]
    cause = explanation.causes[0] if explanation.causes else None
    if cause is None or not cause.env:
        name = cause.cause if cause else explanation.verdict.value
        return "\n".join([*lines, f"# {name}: no environment variable cures this."]) + "\n"
    lines.append(f"# {FOUND[cause.confidence]}: {cause.cause}. {_ascii(cause.verdict)}")
    if cause.confidence is Confidence.LOW:
        names = ", ".join(name for name, _ in cause.env)
        lines.append(f"# Other causes would leave the same log, so nothing is set. Worth a try: {names}.")
        return "\n".join(lines) + "\n"
    for name, value in cause.env:
        lines += [f"# confirm it with: {_ascii(cause.confirm_with)}", f"export {name}='{value}'"]
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
    return [
        BLANK,
        Text(f"{CONFIDENCE[cause.confidence].capitalize()} ({cause.cause}): {cause.because}."),
        *section("The lines that show it", *quotes),
        *section("What to do", *steps),
        *section("To confirm it", *_code(cause.confirm_with)),
    ]


def where(quote: Quote, sources: Sequence[SourceRead]) -> str:
    """Return the line's number, with its file where there are several."""
    return f"{quote.source}:{quote.line}" if len(sources) > 1 else f"line {quote.line}"


def _quote(quote: Quote, sources: Sequence[SourceRead]) -> list[Block]:
    text = " ".join(clean(quote.text).split())
    return [
        Text(f"{where(quote, sources)}: {quote.means}", 2, limit=lambda width: width - 2),
        Text(text, 4, label="| ", limit=lambda width: max(20, (width - 6) * 3)),
    ]


def _moment(quote: Quote, sources: Sequence[SourceRead]) -> Text:
    who = ("rank " + quote.rank if quote.rank else "") + (f" on {quote.host}" if quote.host else "")
    head = "  ".join(part for part in (quote.time, who.strip(), where(quote, sources)) if part)
    return Text(quote.means, 2, 6, head=f"{head}:")


def _consequence(consequence: Consequence) -> Text:
    ranks = listed(consequence.ranks, RANKS)
    who = f" (rank{'s' if len(consequence.ranks) > 1 else ''} {ranks})" if consequence.ranks else ""
    return bullet(f"{consequence.what}{who}: {consequence.why}")


def _code(text: str, indent: int = 4) -> list[Block]:
    """Return a command as it is typed, below its comment; one that is wider than the terminal is wrapped."""
    command, _, comment = text.partition("   # ")
    notes = [Text(comment, indent, label="# ")] if comment else []
    return [*notes, Code((command,), indent)]


def _footer(sources: Sequence[SourceRead]) -> list[Block]:
    """Return how much was read, and what could not be, and why: files with one reason together."""
    read = [source for source in sources if source.size_bytes or not source.note]
    size, lines = sum(source.size_bytes for source in read), sum(source.lines for source in read)
    names = read[0].name if len(read) == 1 else f"{len(read)} logs"
    by_reason = grouped((source.note, source.name) for source in sources if source.note)
    notes = [bullet(f"{clean(listed(files, FILES))}: {clean(why)}") for why, files in by_reason.items()]
    shown = notes[:REASONS] + ([bullet(f"{len(notes) - REASONS} more reasons in --json")] if notes[REASONS:] else [])
    return [
        Text(f"Read {names}: {lines} lines, {_size(size)}." + (" Not read, or not all of it:" if shown else "")),
        *shown,
    ]


def _size(size_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes} bytes"


def _ascii(text: str) -> str:
    return " ".join(clean(text).encode("ascii", "replace").decode("ascii").split())
