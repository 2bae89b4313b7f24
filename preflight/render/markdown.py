"""Markdown (GitHub's), for a job summary, an issue or a chat: verdict, findings, trials, settings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from preflight.model.facts import Gap
from preflight.model.finding import Finding, Severity
from preflight.model.report import Report
from preflight.model.trial import TrialResult
from preflight.model.units import rate_text, size_text, time_text
from preflight.plan.duel import decision_results
from preflight.render.env_file import shell_quote
from preflight.render.reasons import answer, headline, hosts, is_bad, is_good, line, reasons, unfinished
from preflight.render.speeds import baseline_rows, judge_text
from preflight.render.text import clean

ACTIVE = re.compile(r"([\\`*_{}\[\]<>#|~&$@!])")  # what begins emphasis, code, HTML, a link, a table cell or a mention
SIGNS = {Severity.FAIL: "❌", Severity.WARN: "⚠️", Severity.INFO: "💬"}
SHORTEST_FENCE = 3


def render_markdown(report: Report) -> str:
    """Return the document; text from outside is escaped, and values stand in code spans."""
    sign = "✅" if is_good(report) else "❌" if is_bad(report) else "❔"
    about = [
        f"{code(hosts(report))}", f"{report.world_size} ranks on {code(report.backend)}",
        f"profile {code(report.profile)}", f"preflight {code(report.preflight_version)}", code(report.created_at),
    ]  # fmt: skip
    lines = [f"# {sign} preflight: {answer(report).replace('_', ' ')}", "", prose(headline(report)), ""]
    lines += [" · ".join(about), "", *_why(report), *_unfinished(report)]
    lines += [*_findings(report.findings), *_trials(report), *_speeds(report), *_settings(report), *_skipped(report)]
    took = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.durations_s)
    return "\n".join([*lines, *([f"Took: {prose(took)}"] if took else [])]).rstrip() + "\n"


def prose(text: str) -> str:
    """Return text from outside in which nothing is active."""
    return ACTIVE.sub(r"\\\1", line(text)).replace("://", ":\\//").replace("www.", "www\\.")


def code(text: str) -> str:
    """Return text from outside as a code span that it can't end, also inside a table."""
    text = line(text).replace("|", "\\|") or " "
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _why(report: Report) -> list[str]:
    if is_good(report):
        return []
    return ["## Why", "", *(f"1. {prose(reason)}" for reason in reasons(report)), ""]


def _unfinished(report: Report) -> list[str]:
    parts = [f"- **{prose(each.name)}** {each.end.value.replace('_', ' ')}: {prose(each.detail)}"
             for each in unfinished(report)]  # fmt: skip
    return ["## Not finished", "", *parts, ""] if parts else []


def _findings(findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    order = list(Severity)
    lines = ["## Findings", ""]
    for each in sorted(findings, key=lambda each: order.index(each.severity)):
        lines.append(f"- {SIGNS[each.severity]} **{each.severity.value}** {code(each.check)} · {code(each.subject)} "
                     f"({each.blame.value}): {prose(each.problem)}")  # fmt: skip
        lines += [f"  - {prose(seen.what)}: {code(seen.value)} ({prose(seen.source)})" for seen in each.evidence]
        lines += [f"  - **fix:** {prose(each.fix)}"] if each.fix else []
    return [*lines, ""]


def _trials(report: Report) -> list[str]:
    if not report.trials:
        return []
    lines = ["## Trials", "", "| candidate | outcome | collective | size | busbw | time | data |"]
    lines.append("|---|---|---|--:|--:|--:|---|")
    for trial in report.trials:
        lines += _trial(trial, report.backend)
    failed = [f"- {code(each.candidate)}: {prose(each.problem)}" for each in report.trials if each.problem]
    return [*lines, "", *failed, *([""] if failed else [])]


def _trial(trial: TrialResult, backend: str) -> list[str]:
    start = f"| {code(trial.candidate)} | {trial.outcome.value} |"
    results = decision_results(trial.results, cpu_path=backend == "gloo")
    if not results:
        return [f"{start} | | | | |"]
    rows = []
    for each in results:
        busbw = "?" if isinstance(each.busbw_gb_s, Gap) else rate_text(each.busbw_gb_s)
        time = "?" if isinstance(each.median_us, Gap) else time_text(each.median_us)
        data = "verified" if each.verified else "**wrong**"
        rows.append(f"{start} {each.collective.value} | {size_text(each.size_bytes)} | {busbw} | {time} | {data} |")
        start = "| | |"
    return rows


def _speeds(report: Report) -> list[str]:
    if not report.judged_by:
        return []
    lines = ["## Speeds judged by", "", *(f"- {prose(judge_text(each))}" for each in report.judged_by), ""]
    rows = [f"| {' | '.join(prose(cell) for cell in row)} |" for row in baseline_rows(report)]
    head = ["| collective | sizes | share of good nodes, each time | mean | floor | |", "|---|---|---|--:|--:|---|"]
    return [*lines, *head, *rows, ""] if rows else lines


def _settings(report: Report) -> list[str]:
    advice = report.advice
    lines = [f"export {clean(name)}={clean(shell_quote(value))}" for name, value in (*advice.gpu_env, *advice.env)]
    lines += [f"unset {clean(name)}" for name in advice.unset]
    reason = ["## Settings", "", prose(advice.reason), ""]
    if not lines or not is_good(report):
        return reason
    longest = max((len(run) for text in lines for run in re.findall("`+", text)), default=0)
    fence = "`" * max(SHORTEST_FENCE, longest + 1)
    evidence = [f"- {code(name)}: {prose(told)}" for name, told in advice.evidence]
    return [*reason, f"{fence}sh", *lines, fence, "", *evidence, *([""] if evidence else [])]


def _skipped(report: Report) -> list[str]:
    if not report.skipped_checks:
        return []
    parts = [f"- {code(each.check)}: {prose(each.reason)}" for each in report.skipped_checks]
    return ["## Could not look", "", *parts, ""]
