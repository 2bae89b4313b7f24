"""The answer to "will it fit" as a person reads it."""

from __future__ import annotations

from preflight.model.fit import Certainty, Fit, FitVerdict, MemoryNeed, MemoryTerm, Phase, Place
from preflight.model.gap import Gap
from preflight.model.units import size_text
from preflight.render.text import INDENT, Style, clean, finish, heading, paint, shorten, width_of, wrap

WORDS = {
    FitVerdict.CANNOT_FIT: ("cannot fit", "red"),
    FitVerdict.MAY_FIT: ("may fit", "green"),
    FitVerdict.UNKNOWN: ("unknown", "yellow"),
}
MEANS = {
    FitVerdict.CANNOT_FIT: "what is certain to be needed is more than there is",
    FitVerdict.MAY_FIT: "the bound is a lower one: it can refuse, but not promise",
    FitVerdict.UNKNOWN: "what is needed is known, what there is is not",
}
PLACES = {
    (Place.GPU, Phase.TRAINING): "each GPU, in training",
    (Place.GPU, Phase.SAVE): "each GPU, while saving",
    (Place.HOST, Phase.SAVE): "the host of rank 0, while saving",
}
MARKS = {
    Certainty.CERTAIN: "",
    Certainty.USUAL: "usual: ",
    Certainty.ESTIMATE: "estimate: ",
    Certainty.WITHOUT_CHECKPOINTING: "estimate: ",
}
NAME_COLUMNS, SIZE_COLUMNS = 31, 10
NARROW = 64  # columns below which a reason stands on lines of its own


def render_fit(fit: Fit, style: Style) -> str:
    """Return the section as a page of its own."""
    return finish(fit_section(fit, style), style)


def fit_section(fit: Fit, style: Style) -> list[str]:
    """Return the verdict, then for each place and phase its terms, their sums and what there is."""
    word, colour = WORDS[fit.verdict]
    told = MEANS[fit.verdict] if fit.needs else "say how many parameters the model has"
    first, *others = wrap(f"{told}", style.width, f"{INDENT}{word}: ", INDENT)
    lines = [*heading("Will it fit", style), first.replace(word, paint(word, colour, style), 1), *others]
    told_before: set[MemoryTerm] = set()
    for need in fit.needs:
        fresh = [term for term in need.terms if term not in told_before]
        lines += ["", *_need(need, fresh, style)] if fresh else []  # a save that takes no more than training
        told_before |= set(need.terms)
    for way in fit.ways_out:
        lines += wrap(clean(way), style.width, f"{INDENT}smaller: ", INDENT * 3)
    return lines


def _need(need: MemoryNeed, fresh: list[MemoryTerm], style: Style) -> list[str]:
    if isinstance(need.available_bytes, Gap):
        room = f"free is not known: {need.available_bytes.reason}"
    else:
        room = f"{size_text(need.available_bytes)} {need.available_source}"
    lines = wrap(clean(f"{PLACES[need.place, need.phase]}: {room}"), style.width, INDENT, INDENT * 2)
    if len(fresh) < len(need.terms):
        above = sum(term.needed_bytes for term in need.terms if term not in fresh)
        lines += _row(INDENT + "states", above, "as above", style)
    for term in fresh:
        lines += _row(INDENT + _name(term), term.needed_bytes, MARKS[term.certainty] + term.reason, style)
    sums = [("at least", need.at_least_bytes)]
    sums += [("as usual", need.usual_bytes)] if need.usual_bytes > need.at_least_bytes else []
    estimate, whole = need.estimate_bytes, need.without_checkpointing_bytes
    if isinstance(estimate, int) and estimate > need.usual_bytes:
        sums.append(("estimate", estimate))
        if isinstance(whole, int) and whole > estimate:
            sums[-1] = ("estimate with checkpointing", estimate)
            sums.append(("estimate without", whole))
    for i, (name, size_bytes) in enumerate(sums):
        lines += _row(name, size_bytes, _comparison(size_bytes, need, is_bound=i == 0), style)
    return lines


def _name(term: MemoryTerm) -> str:
    return shorten(clean(term.name), NAME_COLUMNS - width_of(INDENT))


def _comparison(size_bytes: int, need: MemoryNeed, *, is_bound: bool) -> str:
    if isinstance(need.available_bytes, Gap):
        return ""
    if size_bytes <= need.available_bytes:
        return "there is room for that"
    return "cannot fit" if is_bound else "more than there is"


def _row(name: str, size_bytes: int, text: str, style: Style) -> list[str]:
    names = min(NAME_COLUMNS, style.width - SIZE_COLUMNS - len(INDENT))
    start = f"{INDENT}{shorten(name, names):<{names}}{size_text(size_bytes):>{SIZE_COLUMNS}}"
    if style.width < NARROW and text:
        return [start, *wrap(clean(text), style.width, INDENT * 3)]
    return [line.rstrip() for line in wrap(clean(text), style.width, start + INDENT, " " * width_of(start + INDENT))]
