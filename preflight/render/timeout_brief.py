"""The first screen of `preflight timeout`: the answer, what it depends on, its largest terms, the line to change."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.fit import Fit, FitVerdict
from preflight.model.gap import Gap
from preflight.model.job import Job
from preflight.model.timeout import Part, SafeTimeout
from preflight.model.units import seconds_text
from preflight.render.console_writer import page
from preflight.render.document import BLANK, Block, Heading, Text, note, table
from preflight.render.fit import fit_section
from preflight.render.text import Style
from preflight.render.timeout import TERM_HEADERS, TITLES, answer_blocks, framework_blocks, job_blocks, term_row

LARGEST = 3
FRAMEWORK = "torch"  # where none was asked for


def render_timeout_brief(
    safe: SafeTimeout, job: Job, typed: str, style: Style, remarks: Sequence[str], framework: str | None,
    fit: Fit | Gap | None = None,
) -> str:  # fmt: skip
    """Return one screen; `remarks` say what the answer depends on, `framework` whose line is wanted."""
    sums = {part: sum(term.counts_s for term in safe.terms if term.part is part) for part in Part}
    part = max(Part, key=lambda each: sums[each])
    terms = sorted((term for term in safe.terms if term.part is part), key=lambda term: -term.counts_s)
    shown = [each for each in safe.frameworks if each.name == (framework or FRAMEWORK)]
    cannot_fit = isinstance(fit, Fit) and fit.verdict is FitVerdict.CANNOT_FIT
    blocks: list[Block] = [
        *answer_blocks(safe),
        *(note(remark) for remark in remarks if remark),
        *job_blocks(job, typed),
        Heading(f"{TITLES[part]}, {seconds_text(sums[part])}: the largest terms"),
        table(TERM_HEADERS, map(term_row, terms[:LARGEST])),
        *framework_blocks(shown),
        *(fit_section(fit) if cannot_fit else ()),
        BLANK,
        Text("-v: every term with its source, what would shorten it, memory, and all frameworks", tone="dim"),
    ]
    return page(blocks, style)
