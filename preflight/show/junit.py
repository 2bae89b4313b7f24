"""The report as JUnit XML: every check, test run and phase is a test case."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from preflight.model.facts import Gap
from preflight.model.finding import CheckOutcome, Finding, Severity, SkippedCheck
from preflight.model.report import Report, RunPhaseEnd, Verdict
from preflight.model.trial import Outcome
from preflight.show.checks_and_findings import counts_text, outcome_word
from preflight.show.speeds import judge_text
from preflight.show.text import clean, line, rfc3339
from preflight.show.verdict import answer, deciding, headline, hosts, is_bad, is_good, waivers

PASSED, FAILURE, ERROR, SKIPPED = "passed", "failure", "error", "skipped"
SILENT = (CheckOutcome.NOT_APPLICABLE, CheckOutcome.NOT_RUN)
PHASES = {
    RunPhaseEnd.COMPLETED: PASSED, RunPhaseEnd.NOT_NEEDED: PASSED, RunPhaseEnd.PARTIAL: ERROR,
    RunPhaseEnd.NOT_REACHED: SKIPPED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TestCase:
    """A test case of the JUnit XML. `message` and `text` say why the test case failed, or give a note."""

    suite: str
    group: str
    name: str
    end: str  # PASSED, FAILURE (looked and found), ERROR (inconclusive), SKIPPED (nothing to look at)
    message: str = ""
    text: str = ""
    time_s: float = 0.0

    __test__ = False  # pytest would take it for a test


def render_junit(report: Report) -> str:
    """Return the JUnit XML of a report.

    Text from outside is escaped.
    """
    cases = test_cases(report)
    root = ET.Element("testsuites", {"name": "preflight", **_counts(cases)})
    if took_s := dict(report.durations_s).get("total"):  # the run's own; its trials are only a part of it
        root.set("time", f"{took_s:.3f}")
    at = rfc3339(report.created_at).removesuffix("Z") or "1970-01-01T00:00:00"
    for suite in dict.fromkeys(case.suite for case in cases):
        inside = [case for case in cases if case.suite == suite]
        node = ET.SubElement(root, "testsuite", {"name": suite, "timestamp": at, "hostname": hosts(report)[:255]})
        node.attrib |= _counts(inside)
        _properties(node, report)
        for case in inside:
            _element(node, case)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def test_cases(report: Report) -> tuple[TestCase, ...]:
    """Return the test cases of the run, of the checks, and of the test runs, in this order."""
    # A check has one test case for each failure and for each node that skipped the check.
    return (*_run_cases(report), *_check_cases(report), *_trial_cases(report))


def _run_cases(report: Report) -> Iterator[TestCase]:
    end = PASSED if is_good(report) else FAILURE if is_bad(report) else ERROR
    yield TestCase("preflight.run", "run", "verdict", end, headline(report))
    for phase in report.phases:
        yield TestCase("preflight.run", "phase", line(phase.name), PHASES[phase.end], line(phase.detail))
    for number, problem in enumerate(report.problems, start=1):
        yield TestCase("preflight.run", "problem", f"problem {number}", ERROR, line(problem))


def _check_cases(report: Report) -> Iterator[TestCase]:
    """Yield a case for each failing finding and each skipped check, and one case for each remaining check."""
    against = deciding(report)
    blames = {each.check: each.blame for each in report.checks}
    spoken: list[Finding | SkippedCheck] = [*report.findings, *report.skipped_checks]
    for each in spoken:
        blames.setdefault(each.check, each.blame)
    silent = {each.check: each for each in report.checks if each.outcome in SILENT}
    promises = {each.check: each.promise for each in report.checks}
    for name, blame in blames.items():
        findings = [each for each in report.findings if each.check == name]
        skips = [each for each in report.skipped_checks if each.check == name]
        failing = [each for each in findings if each in against]
        case = partial(TestCase, "preflight.checks", blame.value)
        for each in failing:
            message = f"{line(each.subject)}: {line(each.problem)}"
            yield case(f"{line(name)}: {line(each.subject)}", FAILURE, message, _body(each))
        for skip in skips:
            end, how = (ERROR, "") if skip.crashed else (SKIPPED, f"{outcome_word(skip.outcome)}: ")
            yield case(line(name), end, f"{how}{line(skip.reason)}")
        idle = silent.get(name)
        if idle is not None and not skips and not findings:
            yield case(line(name), SKIPPED, f"{outcome_word(idle.outcome)}: {line(idle.reason)}")
        elif not failing and not skips:
            text = "\n\n".join(_body(each) for each in findings) or clean(promises.get(name, ""))
            yield case(line(name), PASSED, text=text)


def _trial_cases(report: Report) -> Iterator[TestCase]:
    for trial in report.trials:
        message = line(f"{trial.outcome.value}: {trial.problem}" if trial.problem else trial.outcome.value)
        if trial.outcome is Outcome.OK:
            how = PASSED
        elif trial.outcome in (Outcome.SKIPPED, Outcome.NO_EFFECT):
            how = SKIPPED
        else:  # where another setting works, one that does not is what the experiment was for
            how = FAILURE if report.verdict is Verdict.NOT_READY else SKIPPED
        name, reason = line(trial.candidate), clean(trial.reason)
        yield TestCase("preflight.trials", report.backend, name, how, message, reason, trial.duration_s)


def _body(finding: Finding) -> str:
    note = "" if finding.severity is Severity.FAIL else f"{finding.severity.value}: "
    lines = [f"{note}{clean(finding.subject)}: {clean(finding.problem)}"]
    lines += [f"{clean(each.what)}: {clean(each.value)} ({clean(each.source)})" for each in finding.evidence]
    steps = (("fix", finding.fix), ("workaround", finding.workaround))
    return "\n".join([*lines, *(f"{label}: {clean(text)}" for label, text in steps if text)])


def _counts(cases: Sequence[TestCase]) -> dict[str, str]:
    ends = Counter(case.end for case in cases)
    counts = {"tests": len(cases), "failures": ends[FAILURE], "errors": ends[ERROR], "skipped": ends[SKIPPED]}
    return {name: str(count) for name, count in counts.items()} | {"time": f"{sum(c.time_s for c in cases):.3f}"}


def _properties(suite: ET.Element, report: Report) -> None:
    about = {
        "answer": answer(report),
        "verdict": report.verdict.value,
        **({} if isinstance(report.node_verdict, Gap) else {"node_verdict": report.node_verdict.value}),
        **({"checks": counts_text(report.checks, report.findings)} if report.checks else {}),
        "exit_code": str(report.exit_code),
        "backend": line(report.backend),
        "profile": line(report.profile),
        "world_size": str(report.world_size),
        "simulated": str(report.simulated).lower(),
        "preflight": line(report.preflight_version),
        **({"speeds_judged_by": "; ".join(map(judge_text, report.judged_by))} if report.judged_by else {}),
        **{f"waiver {number}": waiver for number, waiver in enumerate(waivers(report), start=1)},
    }
    listed = ET.SubElement(suite, "properties")
    for name, value in about.items():
        ET.SubElement(listed, "property", {"name": name, "value": value})


def _element(suite: ET.Element, case: TestCase) -> None:
    about = {"classname": f"{case.suite}.{line(case.group)}", "name": case.name, "time": f"{case.time_s:.3f}"}
    node = ET.SubElement(suite, "testcase", about)
    if case.end == PASSED:
        output = "\n".join(part for part in (case.message, case.text) if part)
        if output:
            ET.SubElement(node, "system-out").text = output
        return
    inner = ET.SubElement(node, case.end, {"message": case.message})
    if case.end != SKIPPED:
        inner.set("type", case.end)
        inner.text = case.text or case.message
