"""A safe timeout as a page, and as JSON: the answer, its sum term by term, and where each framework takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from preflight.model.codec import GAPS, encode
from preflight.model.fit import Fit
from preflight.model.gap import Gap
from preflight.model.job import Job
from preflight.model.report import SCHEMA_VERSION
from preflight.model.storage import StorageSpeed
from preflight.model.timeout import FrameworkLine, Part, SafeTimeout, Source, Term, Timings
from preflight.model.units import count_text, decimal_text, seconds_text
from preflight.show.console_writer import page
from preflight.show.document import Block, Heading, Text, answer_line, bullet, item, note, right, section, table
from preflight.show.fit import fit_section
from preflight.show.json_document import dump, part
from preflight.show.text import Style, width_of

TITLES = {Part.TRAINING: "The sum for collectives", Part.INIT: "The sum for the start"}
SOURCES = {Source.MEASURED: "measured", Source.GIVEN: "given", Source.ASSUMED: "assumed"}
TERM_HEADERS = ("term", right("takes"), "", right("counts"), "from")


def render_timeout(
    safe: SafeTimeout,
    job: Job,
    typed: str,
    not_to_raise: Sequence[str],
    style: Style,
    fit: Fit | Gap | None = None,
    gaps: Sequence[str] = (),
) -> str:
    """Return the page of `preflight timeout`.

    `typed` is the model's size as the user wrote it, `gaps` say what was not measured.
    """
    blocks: list[Block] = [
        *answer_blocks(safe),
        *job_blocks(job, typed),
        *_sums(safe),
        *section("What would make it smaller", *map(bullet, safe.smaller)),
        *section("To know", *map(bullet, safe.notes)),
        *section("Do not raise it for", *map(bullet, not_to_raise)),
        *fit_section(fit),
        *section("Not measured", *map(bullet, gaps)),
        *framework_blocks(safe.frameworks),
    ]
    return page(blocks, style)


def job_blocks(job: Job, typed: str) -> list[Block]:
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
    return [note(f"For {size}{trained}; {rest}; {job.world_size} rank{'s' * (job.world_size > 1)}")]


def answer_blocks(safe: SafeTimeout) -> list[Block]:
    """Return the answer and the sentence on it."""
    word, tone = ("SAFE TIMEOUT", "green") if safe.is_enough else ("NO SAFE TIMEOUT", "red")
    if not safe.is_enough and safe.longest_source is Source.ASSUMED:
        word, tone = "UNKNOWN TIMEOUT", "yellow"
    limits = f"{safe.pg_timeout_s} s for collectives, {safe.init_timeout_s} s for the start"
    return [answer_line(word, tone, limits), note(safe.verdict[:1].upper() + safe.verdict[1:])]


def _sums(safe: SafeTimeout) -> list[Block]:
    """Return the sums; the one that decides comes first."""
    sums = {part: sum(term.counts_s for term in safe.terms if term.part is part) for part in Part}
    blocks: list[Block] = []
    explained: set[str] = set()
    for each in sorted(Part, key=lambda part: -sums[part]):
        terms = [term for term in safe.terms if term.part is each]
        below = tuple("" if term.detail in explained else term.detail for term in terms)
        blocks += [Heading(TITLES[each]), replace(table(TERM_HEADERS, map(term_row, terms)), below=below)]
        explained |= {term.detail for term in terms}
        becomes_s = safe.init_timeout_s if each is Part.INIT else safe.pg_timeout_s
        blocks.append(item(_total(sums[each], becomes_s, each, safe)))
    return blocks


def term_row(term: Term) -> tuple[str, ...]:
    """Return a term as a row of the table."""
    counts = seconds_text(term.counts_s) if term.counts_s else "in the above"
    return term.name, seconds_text(term.value), f"x {term.factor}", counts, SOURCES[term.source]


def _total(total_s: float, becomes_s: int, part: Part, safe: SafeTimeout) -> str:
    text = f"= {seconds_text(total_s)}"
    if becomes_s == safe.cap_s and total_s > safe.cap_s:
        return f"{text}, cut to the cap of {safe.cap_s:,} s"
    if becomes_s == safe.floor_s and total_s <= safe.floor_s:
        return f"{text}, raised to the floor of {safe.floor_s:,} s"
    if part is Part.TRAINING and total_s < safe.sum_s:
        return f"{text}; the group's timeout is that of the start, since torch has one for both: {becomes_s:,} s"
    return f"{text}, in whole minutes {becomes_s:,} s"


def framework_blocks(frameworks: Sequence[FrameworkLine], most_lines: int | None = None) -> list[Block]:
    """Return the line of each framework, with its default in so many lines."""
    column = max((width_of(each.name) for each in frameworks), default=0)
    blocks: list[Block] = [Heading("Where to set it")]
    for each in frameworks:
        blocks.append(Text(each.line, 2, column + 6, label=f"{each.name:<{column}}  "))
        blocks.append(Text(_about(each), column + 4, tone="dim", most_lines=most_lines))
    return blocks


def _about(each: FrameworkLine) -> str:
    if isinstance(each.default_s, Gap):
        default = f"default not known: {each.default_s.reason}"
    else:
        default = f"default {each.default_s:,} s"
        if isinstance(each.absorbs_bytes, int) and each.name != "torchrun":
            default += f", enough for saving {decimal_text(each.absorbs_bytes)}"
    return f"{default}; {each.note}"


def render_timeout_json(
    safe: SafeTimeout, job: Job, measured: Timings, storage: StorageSpeed | None, fit: Fit | Gap | None = None
) -> str:
    """Return the document of `preflight timeout --json`; the frameworks are an object by name."""
    answer = encode(safe)
    gaps = answer.pop(GAPS)
    frameworks = {each.pop("name"): each for each in answer["frameworks"]}
    for place, name in enumerate(frameworks):
        start = f"frameworks[{place}]."
        gaps = [{**gap, "fact": gap["fact"].replace(start, f"frameworks.{name}.")} for gap in gaps]
    if isinstance(fit, Gap):
        gaps.append({"fact": "fit", "reason": fit.reason})
    inputs = {
        "job": part("job", job, gaps),
        "measured": part("measured", measured, gaps),
        "storage": part("storage", storage, gaps),
        "fit": None if isinstance(fit, Gap) else part("fit", fit, gaps),
    }
    return dump({"schema_version": SCHEMA_VERSION, **answer, "frameworks": frameworks, **inputs, GAPS: gaps})
