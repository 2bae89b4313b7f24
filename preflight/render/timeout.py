"""A safe timeout as a page: the answer, its sum term by term, and where each framework takes it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from preflight.model.fit import Fit
from preflight.model.gap import Gap
from preflight.model.job import Job
from preflight.model.timeout import FrameworkLine, Part, SafeTimeout, Source, Term
from preflight.model.units import count_text, decimal_text, seconds_text
from preflight.render.fit import fit_section
from preflight.render.text import INDENT, Style, clean, finish, heading, paint, table, width_of, wrap

TITLES = {Part.TRAINING: "The sum for collectives", Part.INIT: "The sum for the start"}
SOURCES = {Source.MEASURED: "measured", Source.GIVEN: "given", Source.ASSUMED: "assumed"}
NOT_TO_RAISE = "Do not raise it for"


def render_timeout(
    safe: SafeTimeout,
    job: Job,
    typed: str,
    not_to_raise: Sequence[str],
    style: Style,
    more: Sequence[str] = (),
    gaps: Sequence[str] = (),
) -> str:
    """Return the page of `preflight timeout`.

    `typed` is the model's size as the user wrote it, `more` are lines of further sections, `gaps` say what was not
    measured.
    """
    lines = [*_answer(safe, style), *_job(job, typed, style), *_sums(safe, style)]
    lines += _items("What would make it smaller", safe.smaller, style)
    lines += _items("To know", safe.notes, style)
    lines += _items(NOT_TO_RAISE, not_to_raise, style)
    lines += more
    lines += _items("Not measured", gaps, style)
    lines += _frameworks(safe, style)
    return finish(lines, style)


def fit_lines(fit: Fit | Gap | None, style: Style) -> list[str]:
    """Return the section "Will it fit", or why there is none."""
    if isinstance(fit, Gap):
        return [*heading("Will it fit", style), *wrap(clean(f"unknown: {fit.reason}"), style.width, INDENT)]
    return [] if fit is None else fit_section(fit, style)


def _job(job: Job, typed: str, style: Style) -> list[str]:
    """Return what the job was taken to be."""
    if job.params is None:
        return []
    total, active = count_text(job.params.total), count_text(job.params.active)
    size = f"{total} parameters"
    if job.params.active < job.params.total:
        size += f", {active} of them active"
    elif "x" in typed.lower():
        size += f" at most ({typed}: every expert as a whole model), how many are active is not said"
    trained = "" if job.lora_share is None else f", {100 * job.lora_share:g} % trained"
    rest = f"{job.dtype.value}, {job.optimizer.value}, {job.strategy.value}, {job.save.value} save"
    ranks = f"{job.world_size} rank{'s' * (job.world_size > 1)}"
    return wrap(clean(f"For {size}{trained}; {rest}; {ranks}"), style.width, INDENT)


def _answer(safe: SafeTimeout, style: Style) -> list[str]:
    word, colour = ("SAFE TIMEOUT", "green") if safe.is_enough else ("NO SAFE TIMEOUT", "red")
    if not safe.is_enough and safe.longest_source is Source.ASSUMED:
        word, colour = "UNKNOWN TIMEOUT", "yellow"
    text = f"{safe.pg_timeout_s} s for collectives, {safe.init_timeout_s} s for the start"
    first, *others = wrap(text, style.width, word + INDENT, INDENT)
    verdict = safe.verdict[:1].upper() + safe.verdict[1:]
    return [first.replace(word, paint(word, colour, style), 1), *others, *wrap(clean(verdict), style.width, INDENT)]


def _sums(safe: SafeTimeout, style: Style) -> list[str]:
    """Return the sums; the one that decides comes first."""
    sums = {part: sum(term.counts_s for term in safe.terms if term.part is part) for part in Part}
    lines: list[str] = []
    told: set[str] = set()
    for part in sorted(Part, key=lambda part: -sums[part]):
        terms = [term for term in safe.terms if term.part is part]
        lines += [*heading(TITLES[part], style), *_terms(terms, style, told)]
        told |= {term.detail for term in terms}
        becomes = safe.init_timeout_s if part is Part.INIT else safe.pg_timeout_s
        lines += wrap(_total(sums[part], becomes, part, safe), style.width, INDENT, INDENT * 2)
    return lines


def _terms(terms: Sequence[Term], style: Style, told: Collection[str]) -> list[str]:
    rows = [
        (each.name, seconds_text(each.value), f"x {each.factor}", _counts(each), SOURCES[each.source]) for each in terms
    ]
    head, *shown = table(("term", "takes", "", "counts", "from"), rows, style.width, right=(1, 3))
    lines = [head]
    for term, row in zip(terms, shown, strict=True):
        why = wrap(clean(term.detail), style.width, INDENT * 2) if term.detail not in told else []
        lines += [row, *(paint(line, "dim", style) for line in why)]
    return lines


def _counts(term: Term) -> str:
    return seconds_text(term.counts_s) if term.counts_s else "in the above"


def _total(total_s: float, becomes_s: int, part: Part, safe: SafeTimeout) -> str:
    text = f"= {seconds_text(total_s)}"
    if becomes_s == safe.cap_s and total_s > safe.cap_s:
        return f"{text}, cut to the cap of {safe.cap_s:,} s"
    if becomes_s == safe.floor_s and total_s <= safe.floor_s:
        return f"{text}, raised to the floor of {safe.floor_s:,} s"
    if part is Part.TRAINING and total_s < safe.sum_s:
        return f"{text}; the group's timeout is that of the start, since torch has one for both: {becomes_s:,} s"
    return f"{text}, in whole minutes {becomes_s:,} s"


def _items(title: str, items: Sequence[str], style: Style) -> list[str]:
    if not items:
        return []
    lines = heading(title, style)
    for item in items:
        lines += wrap(clean(item), style.width, f"{INDENT}- ", INDENT * 2)
    return lines


def _frameworks(safe: SafeTimeout, style: Style) -> list[str]:
    column = max((width_of(each.name) for each in safe.frameworks), default=0)
    margin = INDENT + " " * column + INDENT
    lines = heading("Where it goes", style)
    for each in safe.frameworks:
        start = f"{INDENT}{each.name:<{column}}{INDENT}"
        lines += wrap(clean(each.line), style.width, start, margin + INDENT)
        lines += [paint(line, "dim", style) for line in wrap(clean(_about(each)), style.width, margin)]
    return lines


def _about(each: FrameworkLine) -> str:
    if isinstance(each.default_s, Gap):
        default = f"default not known: {each.default_s.reason}"
    else:
        default = f"default {each.default_s:,} s"
        if isinstance(each.absorbs_bytes, int) and each.name != "torchrun":
            default += f", enough for saving {decimal_text(each.absorbs_bytes)}"
    return f"{default}; {each.note}"
