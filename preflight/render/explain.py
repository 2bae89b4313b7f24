"""An explanation as a page, for somebody who has never heard of NCCL, and as an env file."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.explanation import Confidence, Consequence, ExplainVerdict, Explanation, NamedCause, Quote
from preflight.render.text import Style, clean, finish, heading, paint, shorten, width_of, wrap

CONFIDENCE = {
    Confidence.HIGH: "certain as far as a log can tell",
    Confidence.MEDIUM: "likely",
    Confidence.LOW: "possible; other causes would leave the same log",
}
HEAD = {
    ExplainVerdict.CAUSE_NAMED: ("CAUSE FOUND", "red"),
    ExplainVerdict.HEALTHY: ("NOTHING FAILED", "green"),
    ExplainVerdict.NOT_ENOUGH_EVIDENCE: ("NOT ENOUGH EVIDENCE", "yellow"),
}
EVIDENCE_LINES = 3
TIMELINE_LINES = 8
RANKS = 6


def render_explanation(explanation: Explanation, style: Style) -> str:
    """Return the page that `preflight explain` prints."""
    title, colour = HEAD[explanation.verdict]
    lines = [paint(title, colour, style), *wrap(clean(explanation.summary), style.width)]
    several = len(explanation.sources) > 1
    if explanation.causes:
        lines += _cause(explanation.causes[0], style, several)
    if len(explanation.timeline) > 1 and explanation.causes:
        lines += heading("What happened, in order", style)
        lines += [line for quote in explanation.timeline[:TIMELINE_LINES] for line in _moment(quote, style, several)]
    if explanation.consequences:
        lines += heading("Also seen, and why it is not the cause", style)
        lines += [line for item in explanation.consequences for line in _consequence(item, style)]
    if len(explanation.causes) > 1:
        lines += heading("If that is not it, look next at", style)
        lines += [
            line for cause in explanation.causes[1:4] for line in _item(f"{cause.verdict} [{cause.cause}]", style)
        ]
    if explanation.notes:
        lines += heading("About the timeout" if _speaks_of_timeouts(explanation.notes) else "Note", style)
        lines += [line for note in explanation.notes for line in _item(note, style)]
    if explanation.capture_next:
        lines += heading("To know more next time, capture", style)
        lines += [line for step in explanation.capture_next for line in _code(step, style)]
    lines += ["", *_footer(explanation, style)]
    return finish(lines, style)


def render_explanation_env(explanation: Explanation) -> str:
    """Return the settings that the cause justifies, each marked as unmeasured."""
    lines = ["# Written by preflight explain from a log. NOTHING HERE WAS MEASURED: confirm it with `preflight check`."]
    cause = explanation.causes[0] if explanation.causes else None
    if cause is None or not cause.env:
        name = cause.cause if cause else explanation.verdict.value
        return "\n".join([*lines, f"# {name}: no environment variable cures this."]) + "\n"
    lines.append(f"# Cause: {cause.cause} ({cause.confidence.value} confidence). {_ascii(cause.verdict)}")
    for name, value in cause.env:
        lines += [f"# unmeasured; confirm with: {_ascii(cause.confirm_with)}", f"export {name}='{value}'"]
    return "\n".join(lines) + "\n"


def _cause(cause: NamedCause, style: Style, several: bool) -> list[str]:
    lines = [
        "",
        *wrap(f"{CONFIDENCE[cause.confidence].capitalize()} ({cause.cause}): {clean(cause.because)}.", style.width),
    ]
    if cause.evidence:
        lines += heading("The lines that show it", style)
        for quote in cause.evidence[:EVIDENCE_LINES]:
            lines += _quote(quote, style, several)
    lines += heading("What to do", style)
    number = 0
    for step in cause.remedy.split("\n"):
        if step.startswith("    "):
            lines += _code(step.strip(), style, "       ")
            continue
        number += 1
        lines += wrap(clean(step), style.width, f"  {number}. ", "     ")
    lines += heading("To confirm it", style)
    return lines + _code(cause.confirm_with, style)


def _quote(quote: Quote, style: Style, several: bool) -> list[str]:
    where = f"{quote.source}:{quote.line}" if several else f"line {quote.line}"
    text = shorten(" ".join(clean(quote.text).split()), max(20, (style.width - 6) * 3))
    lines = [f"  {clean(where)}: {clean(quote.means)}"]
    return [shorten(line, style.width) for line in lines] + wrap(text, style.width, "    | ")


def _moment(quote: Quote, style: Style, several: bool) -> list[str]:
    who = ("rank " + quote.rank if quote.rank else "") + (f" on {quote.host}" if quote.host else "")
    where = f"{quote.source}:{quote.line}" if several else f"line {quote.line}"
    head = "  ".join(part for part in (quote.time, clean(who).strip(), clean(where)) if part)
    start = f"  {head}: "
    if width_of(start) > style.width // 2:
        return [shorten(start.rstrip(), style.width), *wrap(clean(quote.means), style.width, "      ")]
    return wrap(clean(quote.means), style.width, start, "      ")


def _consequence(item: Consequence, style: Style) -> list[str]:
    more = f" and {len(item.ranks) - RANKS} more" if len(item.ranks) > RANKS else ""
    who = f" (rank{'s' if len(item.ranks) > 1 else ''} {', '.join(item.ranks[:RANKS])}{more})" if item.ranks else ""
    return _item(f"{clean(item.what)}{who}: {item.why}", style)


def _item(text: str, style: Style) -> list[str]:
    return wrap(clean(text), style.width, "  - ", "    ")


def _code(text: str, style: Style, indent: str = "    ") -> list[str]:
    """Return a command as it is typed, below its comment; one that is wider than the terminal is wrapped."""
    command, _, comment = text.partition("   # ")
    lines = wrap(clean(comment), style.width, f"{indent}# ") if comment else []
    line = indent + clean(command)
    return lines + (
        [line] if width_of(line) <= style.width else wrap(clean(command), style.width, indent, indent + "  ")
    )


def _footer(explanation: Explanation, style: Style) -> list[str]:
    sources = explanation.sources
    size = sum(source.size_bytes for source in sources)
    names = clean(sources[0].name) if len(sources) == 1 else f"{len(sources)} logs"
    lines = wrap(f"Read {names}: {sum(source.lines for source in sources)} lines, {_size(size)}.", style.width)
    for source in sources:
        if source.note:
            lines += wrap(f"{clean(source.name)}: {clean(source.note)}", style.width, "  - ", "    ")
    return lines


def _speaks_of_timeouts(notes: Sequence[str]) -> bool:
    return any("timeout" in note for note in notes)


def _size(size_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes} bytes"


def _ascii(text: str) -> str:
    return " ".join(clean(text).encode("ascii", "replace").decode("ascii").split())
