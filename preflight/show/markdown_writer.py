"""Reports and other documents as GitHub Markdown, for a job summary, an issue or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from preflight.model.finding import CheckOutcome, Finding, Severity
from preflight.model.report import Report
from preflight.model.units import rate_text, size_text, time_text
from preflight.show.checks_and_findings import counts_line, findings_section, silent_sections
from preflight.show.document import (
    Amount,
    Block,
    Code,
    Column,
    Findings,
    Heading,
    Items,
    Matrix,
    Table,
    Text,
    bullet,
    right,
    section,
    table,
)
from preflight.show.settings import commands
from preflight.show.speeds import baseline_table, judge_text
from preflight.show.text import clean, fact_text, line
from preflight.show.trials import deciding_results
from preflight.show.verdict import answer, headline, hosts, is_bad, is_good, reasons, unfinished_section

ACTIVE = re.compile(r"([\\`*_{}\[\]<>#|~&$@!])")  # what begins emphasis, code, HTML, a link, a table cell or a mention
HARMLESS = re.compile(r"[a-z]+(_[a-z]+)*")  # `all_reduce`, which needs no escapes
SIGNS = {Severity.FAIL: "❌", Severity.WARN: "⚠️", Severity.INFO: "💬"}
SHORTEST_FENCE = 3
TRIAL_HEADERS = (
    Column("candidate", is_code=True), "outcome", "collective", right("size"), right("busbw"), right("time"), "data",
)  # fmt: skip


def render_markdown(report: Report) -> str:
    """Return a report as Markdown.

    Text from outside is escaped or in code spans.
    """
    sign = "✅" if is_good(report) else "❌" if is_bad(report) else "❔"
    about = [
        f"{code(hosts(report))}", f"{report.world_size} ranks on {code(report.backend)}",
        f"profile {code(' '.join(filter(None, (report.profile, report.narrowed))))}",
        f"preflight {code(report.preflight_version)}", code(report.created_at),
    ]  # fmt: skip
    start = [f"# {sign} preflight: {answer(report)}", prose(headline(report)), " · ".join(about)]
    why = [] if is_good(report) else [Text(reason, indent=2, label="1. ") for reason in reasons(report)]
    judges = [bullet(judge_text(each)) for each in report.judged_by]
    beside = baseline_table(report, "share of good nodes, each time")
    took = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.durations_s)
    failed = [(each.candidate, each.problem) for each in report.trials if each.problem]
    skipped = [(each.check, each.reason) for each in report.skipped_checks if each.outcome is not CheckOutcome.NOT_RUN]
    settings = commands(report.advice) if is_good(report) else []
    evidence = Items(report.advice.evidence if settings else (), are_code=True)
    blocks = [
        *section("Why", *why),
        *unfinished_section(report),
        *findings_section(report.findings),
        *section("Trials", table(TRIAL_HEADERS, _trial_rows(report)), Items(failed, are_code=True)),
        *(section("Speeds judged by", *judges, beside) if judges else []),
        *section("Settings", Text(report.advice.reason), Code(tuple(settings)), evidence),
        *section("Inconclusive", Items(skipped, are_code=True)),
        *silent_sections(report.checks),
        *counts_line(report.checks, report.findings),
        *([Text(took, label="Took: ")] if took else []),
    ]
    return "\n\n".join([*start, *_chunks(blocks)]) + "\n"


def _trial_rows(report: Report) -> Iterable[list[str]]:
    for trial in report.trials:
        start = [trial.candidate, trial.outcome.value]
        results = deciding_results(trial, report)
        for each in results:
            busbw, time = fact_text(each.shown_gb_s, rate_text), fact_text(each.median_us, time_text)
            data = "verified" if each.verified else "WRONG"
            yield [*start, each.collective.value, size_text(each.size_bytes), busbw, time, data]
            start = ["", ""]
        if not results:
            yield [*start, "", "", "", "", ""]


def prose(text: str) -> str:
    """Return `text` with all Markdown characters escaped."""
    return ACTIVE.sub(r"\\\1", line(text)).replace("://", ":\\//").replace("www.", "www\\.")


def code(text: str) -> str:
    """Return `text` as a Markdown code span that is also safe inside a table."""
    text = line(text).replace("|", "\\|") or " "
    fence = "`" * (1 + _longest_fence([text]))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _longest_fence(lines: Iterable[str]) -> int:
    return max((len(run) for text in lines for run in re.findall("`+", text)), default=0)


def _chunks(blocks: Sequence[Block]) -> list[str]:
    """Return the text of each block; list items that follow each other form one list."""
    chunks: list[str] = []
    was_item = False
    for block in blocks:
        is_item = isinstance(block, Text) and block.indent > 0
        text = "\n".join(_lines(block))
        if was_item and is_item:
            chunks[-1] += "\n" + text
        elif text:
            chunks.append(text)
        was_item = is_item
    return chunks


def _lines(block: Block) -> list[str]:
    match block:
        case Heading():
            return [f"## {prose(block.title)}"]
        case Text():
            return [f"{block.label}{prose(block.text)}"]
        case Items():
            bold = code if block.are_code else lambda name: f"**{prose(name)}**"
            return [f"- {bold(name)}{':' if block.are_code else ''} {prose(value)}" for name, value in block.rows]
        case Code():
            lines = [clean(command) for command in block.rows]
            fence = "`" * max(SHORTEST_FENCE, 1 + _longest_fence(lines))
            return [f"{fence}sh", *lines, fence] if lines else []
        case Table():
            return _table(block)
        case Findings():
            return [text for finding in block.findings for text in _finding(finding)]
        case Matrix() | Amount():
            raise NotImplementedError(f"no Markdown page has a {type(block).__name__}")


def _table(block: Table) -> list[str]:
    def row(cells: Iterable[str]) -> str:
        return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"

    rows = [row(map(_cell, block.columns, cells)) for cells in block.rows]
    rule = "|".join("--:" if column.is_right else "---" for column in block.columns)
    return [row(prose(column.title) for column in block.columns), f"|{rule}|", *rows]


def _cell(column: Column, text: str) -> str:
    if not text or (not column.is_code and HARMLESS.fullmatch(text)):
        return text
    return code(text) if column.is_code else prose(text)


def _finding(finding: Finding) -> list[str]:
    about = f"**{finding.severity.value}** {code(finding.check)} · {code(finding.subject)} ({finding.blame.value})"
    lines = [f"- {SIGNS[finding.severity]} {about}: {prose(finding.problem)}"]
    lines += [f"  - {prose(each.what)}: {code(each.value)} ({prose(each.source)})" for each in finding.evidence]
    steps = (("fix", finding.fix), ("workaround", finding.workaround))
    return [*lines, *(f"  - **{label}:** {prose(text)}" for label, text in steps if text)]
