"""The first screen of `preflight timeout`: the answer, what it depends on, its largest terms, the line to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from preflight.model.fit import Fit, FitVerdict
from preflight.model.gap import Gap
from preflight.model.job import Job
from preflight.model.timeout import Part, SafeTimeout, Source
from preflight.model.units import seconds_text
from preflight.show.console_writer import finish
from preflight.show.document import Block, Heading, Text, note, table
from preflight.show.fit import fit_section
from preflight.show.screen import fitted, foot_of
from preflight.show.text import Style, line
from preflight.show.timeout import TERM_HEADERS, TITLES, answer_blocks, framework_blocks, job_blocks, term_row

LARGEST = 3
FRAMEWORK = "torch"  # where none was asked for
MORE = "-v: every term with its source, what would shorten it, all frameworks"
MEASURE = "--checkpoint-dir DIR (where the checkpoints go) measures what was assumed here"


def render_timeout_brief(
    safe: SafeTimeout, job: Job, typed: str, style: Style, remarks: Sequence[str], framework: str | None,
    fit: Fit | Gap | None = None, written: str = "",
) -> str:  # fmt: skip
    """Return one screen; `remarks` say what the answer depends on, `framework` whose line is wanted."""
    sums = {part: sum(term.counts_s for term in safe.terms if term.part is part) for part in Part}
    part = max(Part, key=lambda each: sums[each])
    terms = sorted((term for term in safe.terms if term.part is part), key=lambda term: -term.counts_s)
    shown = [each for each in safe.frameworks if each.name == (framework or FRAMEWORK)]
    cannot_fit = isinstance(fit, Fit) and fit.verdict is FitVerdict.CANNOT_FIT
    head: list[Block] = [*answer_blocks(safe), *(note(remark) for remark in remarks if remark), *job_blocks(job, typed)]
    title = Heading(f"{TITLES[part]}, {seconds_text(sums[part])}: the largest terms")
    groups: list[list[Block]] = [
        framework_blocks(shown, most_lines=2),
        [title, table(TERM_HEADERS, map(term_row, terms[:LARGEST]))],
        fit_section(fit) if cannot_fit else [],
    ]
    rows = [("Next", _next(safe, cannot_fit)), *([("Written", written)] if written else []), ("More", MORE)]
    return fitted(_cut(head), [group for group in groups if group], foot_of(rows), style)


def render_timeout_verdict(safe: SafeTimeout, style: Style) -> str:
    """Return the answer on one line, for `-q`."""
    word, _ = answer_blocks(safe)
    assert isinstance(word, Text)
    return finish([f"{word.label}{line(word.text)}"], style)


def _cut(head: Sequence[Block]) -> list[Block]:
    return [replace(each, most_lines=3) if isinstance(each, Text) else each for each in head]


def _next(safe: SafeTimeout, cannot_fit: bool) -> str:
    """Return what to do with the answer."""
    if cannot_fit:
        return "make the job smaller first: it does not fit into the GPUs here"
    if not safe.is_enough:
        is_guess = safe.longest_source is Source.ASSUMED
        return MEASURE if is_guess else f"{safe.smaller[0]}" if safe.smaller else "shorten that pause"
    is_assumed = any(term.name == "saving" and term.source is Source.ASSUMED for term in safe.terms)
    return f"better first: {MEASURE}; else give the job this timeout" if is_assumed else "give the job this timeout"
