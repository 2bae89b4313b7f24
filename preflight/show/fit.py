"""The section "Will it fit": whether the job fits into memory, and the components of its memory need."""

from __future__ import annotations

from preflight.model.fit import Certainty, Fit, FitVerdict, MemoryNeed, MemoryPhase, MemoryPlace, MemoryTerm
from preflight.model.gap import Gap
from preflight.model.units import size_text
from preflight.show.document import BLANK, Amount, Block, Heading, Text, item

WORDS = {
    FitVerdict.CANNOT_FIT: (
        "cannot fit",
        "red",
        "even the lower bound exceeds the available memory, unless the job offloads, quantizes or divides the model "
        "further",
    ),
    FitVerdict.NOT_AS_USUAL: (
        "does not fit as usual",
        "yellow",
        "the job needs more memory than there is, unless it does without:",
    ),
    FitVerdict.MAY_FIT: ("may fit", "green", "the lower bound fits, but the job may need more"),
    FitVerdict.UNKNOWN: ("unknown", "yellow", "the need is known, but the available memory is not"),
}
PURE = "fits only in pure 16-bit"
PLACES = {
    (MemoryPlace.HOST, MemoryPhase.LOADING): "this host, while its ranks load the weights",
    (MemoryPlace.GPU, MemoryPhase.TRAINING): "each GPU, in training",
    (MemoryPlace.GPU, MemoryPhase.SAVE): "each GPU, during a checkpoint",
    (MemoryPlace.HOST, MemoryPhase.SAVE): "the host of rank 0, in a checkpoint",
}
MARKS = {
    Certainty.CERTAIN: "",
    Certainty.USUAL: "usual: ",
    Certainty.ESTIMATE: "estimate: ",
    Certainty.WITHOUT_CHECKPOINTING: "estimate: ",
}


def fit_section(fit: Fit | Gap | None) -> list[Block]:
    """Return the section "Will it fit".

    The result is [] if `fit` is None. If `fit` is a Gap, the section says why the answer is unknown.
    """
    if fit is None:
        return []
    heading = Heading("Will it fit")
    if isinstance(fit, Gap):
        return [heading, Text(f"unknown: {fit.reason}", 2)]
    word, tone, meaning = WORDS[fit.verdict]
    text = meaning if fit.needs else "say how many parameters the model has"
    if fit.verdict is FitVerdict.NOT_AS_USUAL:
        short = [need for need in fit.needs if need.verdict is fit.verdict]
        kept = dict.fromkeys(term.name for need in short for term in need.terms if term.certainty is Certainty.USUAL)
        text = f"{meaning} {', '.join(kept)}"
        word = PURE if any("fp32" in name for name in kept) else word
    blocks: list[Block] = [heading, Text(text, 2, label=f"{word}: ", label_tone=tone, hang=2)]
    shown: set[MemoryTerm] = set()
    for need in fit.needs:
        fresh = [term for term in need.terms if term not in shown]
        blocks += _need(need, fresh) if fresh else []  # a save that takes no more than training
        shown |= set(need.terms)
    return blocks + [Text(way, 2, 6, label="smaller: ") for way in fit.ways_out]


def _need(need: MemoryNeed, fresh: list[MemoryTerm]) -> list[Block]:
    if isinstance(need.available_bytes, Gap):
        headroom = f"free is not known: {need.available_bytes.reason}"
    else:
        headroom = f"{size_text(need.available_bytes)} {need.available_source}"
    blocks: list[Block] = [BLANK, item(f"{PLACES[need.place, need.phase]}: {headroom}")]
    if len(fresh) < len(need.terms):
        above = sum(term.needed_bytes for term in need.terms if term not in fresh)
        blocks.append(Amount("states", size_text(above), "as above", indent=4))
    for term in fresh:
        blocks.append(Amount(term.name, size_text(term.needed_bytes), MARKS[term.certainty] + term.reason, indent=4))
    sums = [("at least", need.at_least_bytes)] if need.at_least_bytes else []
    sums += [("as usual", need.usual_bytes)] if need.usual_bytes > need.at_least_bytes else []
    estimate, whole = need.estimate_bytes, need.without_checkpointing_bytes
    if isinstance(estimate, int) and estimate > need.usual_bytes:
        if isinstance(whole, int) and whole > estimate:
            sums += [("estimate with checkpointing", estimate), ("estimate without", whole)]
        else:
            sums.append(("estimate", estimate))
    for name, size_bytes in sums:
        blocks.append(Amount(name, size_text(size_bytes), _comparison(size_bytes, need, is_bound=name == "at least")))
    return blocks


def _comparison(size_bytes: int, need: MemoryNeed, *, is_bound: bool) -> str:
    if isinstance(need.available_bytes, Gap):
        return ""
    if size_bytes <= need.available_bytes:
        return "there is room for that"
    return "cannot fit" if is_bound else "more than there is"
