"""The page and the JSON document of `preflight timeout`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from preflight.model.codec import GAPS, encode
from preflight.model.fit import Fit, FitVerdict
from preflight.model.gap import Gap
from preflight.model.job import Job
from preflight.model.report import SCHEMA_VERSION
from preflight.model.storage import StorageSpeed
from preflight.model.timeout import FrameworkLine, Part, SafeTimeout, Source, Term, Timings
from preflight.model.units import capitalized, count_text, decimal_text, seconds_text
from preflight.show.document import Block, Heading, Text, answer_line, bullet, item, note, right, section, table
from preflight.show.fit import fit_section
from preflight.show.json_document import dump, part
from preflight.show.screen import Page
from preflight.show.text import width_of

TITLES = {Part.TRAINING: "Time budget for collectives", Part.INIT: "Time budget for the start"}
SOURCES = {Source.MEASURED: "measured", Source.GIVEN: "given", Source.ASSUMED: "assumed"}
TERM_HEADERS = ("component", right("takes"), "", right("counts"), "from")
LARGEST = 3
FRAMEWORK = "torch"  # where none was asked for
LEAVE = (
    "keep the timeout. Start the job with `preflight run -- COMMAND`, which shows where each rank waits if the job "
    "hangs. For a job that hangs now, run `preflight stuck`"
)
MEASURE = "measure the assumed values with --checkpoint-dir DIR"


@dataclass(frozen=True, slots=True)
class ShownTimeout:
    """The content of the page on a safe timeout: the timeout, the job, and remarks."""

    safe: SafeTimeout
    job: Job
    typed: str = ""  # the model's size as the user wrote it
    fit: Fit | Gap | None = None
    remarks: tuple[str, ...] = ()  # what the answer depends on
    framework: str = FRAMEWORK  # whose line is wanted first
    not_to_raise: Sequence[str] = ()
    not_measured: Sequence[str] = ()
    written: str = ""
    current_s: float | None = None  # the job's own timeout

    @property
    def is_long_enough(self) -> bool:
        """Return whether the job's own timeout already covers all known components."""
        return self.safe.is_enough and self.current_s is not None and self.safe.pg_timeout_s <= self.current_s


def timeout_page(shown: ShownTimeout) -> Page:
    """Return the page on the safe timeout, with its largest components and the setting to change."""
    safe, fit = shown.safe, shown.fit
    answer, verdict = _answer(safe)
    sums = {part: sum(term.counts_s for term in safe.terms if term.part is part) for part in Part}
    # Who names the job's own timeout asks about its collectives.
    part = Part.TRAINING if shown.is_long_enough else max(Part, key=lambda each: sums[each])
    terms = sorted((term for term in safe.terms if term.part is part), key=lambda term: -term.counts_s)
    frameworks = () if shown.is_long_enough else safe.frameworks
    lines = [each for each in frameworks if each.name == shown.framework]
    cannot_fit = isinstance(fit, Fit) and fit.verdict is FitVerdict.CANNOT_FIT
    title = Heading(f"{TITLES[part]}, {seconds_text(sums[part])}: the largest components")
    groups: list[list[Block]] = [
        _framework_blocks(lines, most_lines=2) if lines else [],
        [title, table(TERM_HEADERS, map(_term_row, terms[:LARGEST]))],
        fit_section(fit) if cannot_fit else [],
        fit_section(fit)[:2] if isinstance(fit, Fit) and fit.verdict is FitVerdict.NOT_AS_USUAL else [],
    ]
    about_job = _job_blocks(shown.job, shown.typed)
    head = [answer, verdict, *(note(remark) for remark in shown.remarks if remark), *about_job]
    foot = [("Next", LEAVE if shown.is_long_enough else _next(safe, cannot_fit))]
    foot += [("Written", shown.written)] if shown.written else []

    more = ["all components with sources", *(["what would shorten them"] if safe.smaller else [])]
    more += ["all frameworks"] if frameworks else ["problems that a longer timeout does not solve"]

    def whole() -> list[Block]:
        return [
            answer,
            verdict,
            *about_job,
            *_sums(safe),
            *section("What would make it smaller", *map(bullet, safe.smaller)),
            *section("To know", *map(bullet, safe.notes)),
            *section("Do not raise it for", *map(bullet, shown.not_to_raise)),
            *fit_section(fit),
            *section("Not measured", *map(bullet, shown.not_measured)),
            *(_framework_blocks(frameworks) if frameworks else []),
        ]

    return Page(
        answer,
        [replace(each, most_lines=3) for each in head],
        [group for group in groups if group],
        [*foot, ("More", f"-v: {', '.join(more)}")],
        whole,
    )


def _job_blocks(job: Job, typed: str) -> list[Text]:
    """Return a description of the job for which the timeout was computed."""
    if job.params is None:
        return []
    total, active = count_text(job.params.total), count_text(job.params.active)
    size = f"{total} parameters"
    if job.params.active < job.params.total:
        size += f", {active} of them active"
    elif "x" in typed.lower():
        size += f" at most ({typed}: every expert as a whole model), how many are active is not said"
    trained = "" if job.lora_share is None else f", {100 * job.lora_share:g}% trained"
    rest = f"{job.dtype.value}, {job.optimizer.value}, {job.strategy.value}, {job.save.value} checkpoint"
    return [note(f"For {size}{trained}; {rest}; {job.world_size} rank{'s' * (job.world_size > 1)}")]


def _answer(safe: SafeTimeout) -> tuple[Text, Text]:
    """Return the page's first line with the timeout, and the sentence of the verdict."""
    word, tone = ("SAFE TIMEOUT", "green") if safe.is_enough else ("NO SAFE TIMEOUT", "red")
    if not safe.is_enough and safe.longest_source is Source.ASSUMED:
        word, tone = "UNKNOWN TIMEOUT", "yellow"
    limits = f"{safe.pg_timeout_s} s for collectives, {safe.init_timeout_s} s for the job's start"
    if safe.training_timeout_s < safe.pg_timeout_s:
        limits = f"{safe.pg_timeout_s} s for collectives, {safe.training_timeout_s} s after the first step"
    if not safe.is_enough:
        verb = "may need" if word == "UNKNOWN TIMEOUT" else "needs"
        needed_s = 60 * math.ceil(safe.sum_s / 60)
        limits = f"the job {verb} {needed_s} s; preflight advises at most {safe.cap_s} s"
    return answer_line(word, tone, limits), note(capitalized(safe.verdict))


def _sums(safe: SafeTimeout) -> list[Block]:
    """Return both time budgets and the components of each. The larger budget decides and comes first."""
    sums = {part: sum(term.counts_s for term in safe.terms if term.part is part) for part in Part}
    blocks: list[Block] = []
    explained: set[str] = set()
    for each in sorted(Part, key=lambda part: -sums[part]):
        terms = [term for term in safe.terms if term.part is each]
        below = tuple("" if term.detail in explained else term.detail for term in terms)
        blocks += [Heading(TITLES[each]), replace(table(TERM_HEADERS, map(_term_row, terms)), below=below)]
        explained |= {term.detail for term in terms}
        becomes_s = safe.init_timeout_s if each is Part.INIT else safe.pg_timeout_s
        blocks.append(item(_total(sums[each], becomes_s, each, safe)))
    return blocks


def _term_row(term: Term) -> tuple[str, ...]:
    """Return a component of the time budget as a row of the table."""
    counts = seconds_text(term.counts_s) if term.counts_s else "in the above"
    return term.name, seconds_text(term.value), f"x {term.factor}", counts, SOURCES[term.source]


def _total(total_s: float, becomes_s: int, part: Part, safe: SafeTimeout) -> str:
    text = f"= {seconds_text(total_s)}"
    if becomes_s == safe.cap_s and total_s > safe.cap_s:
        return f"{text}, cut to preflight's limit of {safe.cap_s:,} s"
    if becomes_s == safe.floor_s and total_s <= safe.floor_s:
        return f"{text}, raised to the minimum of {safe.floor_s:,} s"
    if part is Part.TRAINING and total_s < safe.sum_s:
        return f"{text}; the group's timeout is that of the start, since torch has one for both: {becomes_s:,} s"
    return f"{text}, in whole minutes {becomes_s:,} s"


def _framework_blocks(frameworks: Sequence[FrameworkLine], most_lines: int | None = None) -> list[Block]:
    """Return the setting and the default timeout of each framework.

    The text on the default timeout has at most `most_lines` lines.
    """
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
            default += f", enough for a checkpoint of {decimal_text(each.absorbs_bytes)}"
    return f"{default}; {each.note}"


def render_timeout_json(
    safe: SafeTimeout, job: Job, measured: Timings, storage: StorageSpeed | None, fit: Fit | Gap | None = None
) -> str:
    """Return the JSON document of `preflight timeout`."""
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


def _next(safe: SafeTimeout, cannot_fit: bool) -> str:
    """Return the next step for the user."""
    if cannot_fit:
        return "make the job smaller first: it does not fit into the GPUs here"
    if not safe.is_enough:
        is_guess = safe.longest_source is Source.ASSUMED
        return MEASURE if is_guess else f"{safe.smaller[0]}" if safe.smaller else "shorten that pause"
    is_assumed = any(term.name == "checkpoint" and term.source is Source.ASSUMED for term in safe.terms)
    return f"{MEASURE}, or give the job this timeout" if is_assumed else "give the job this timeout"
