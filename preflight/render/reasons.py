"""What decided, most important first: the one order that every short output follows."""

from __future__ import annotations

from preflight.model.facts import Gap
from preflight.model.finding import REJECTS_A_NODE, Finding, Severity
from preflight.model.report import NodeVerdict, Phase, PhaseEnd, Report, Verdict
from preflight.render.text import clean

SIMULATED = "SIMULATED"


def answer(report: Report) -> str:
    """Return the word that decides: the node's where --accept asked for it, else the job's."""
    if isinstance(report.node_verdict, Gap):
        return report.verdict.value
    return report.node_verdict.value


def is_good(report: Report) -> bool:
    """Tell whether the answer is ready or accept."""
    if isinstance(report.node_verdict, Gap):
        return report.verdict in (Verdict.READY, Verdict.READY_WITH_ENV)
    return report.node_verdict is NodeVerdict.ACCEPT


def is_bad(report: Report) -> bool:
    """Tell whether the answer is not_ready or reject, which is more than not to know."""
    if isinstance(report.node_verdict, Gap):
        return report.verdict is Verdict.NOT_READY
    return report.node_verdict is NodeVerdict.REJECT


def headline(report: Report) -> str:
    """Return the verdict's sentence, on one line, with a simulated run called one."""
    return f"{SIMULATED}: {line(report.headline)}" if report.simulated else line(report.headline)


def line(text: str) -> str:
    """Return text from outside as one line in which nothing invisible is left."""
    return clean(" ".join(text.split()))


def deciding(report: Report) -> tuple[Finding, ...]:
    """Return the findings that speak against, those that blame the node first; warnings where they decided."""
    failing = [each for each in report.findings if each.severity is Severity.FAIL]
    of_the_node = isinstance(report.node_verdict, NodeVerdict)
    if is_bad(report) and not any(each.blame in REJECTS_A_NODE or not of_the_node for each in failing):
        # With --strict, and for a fault that was worked round, a warning rejects.
        failing += [each for each in report.findings if each.severity is Severity.WARN]
    return tuple(sorted(failing, key=_weight))


def _weight(finding: Finding) -> tuple[bool, bool]:
    return finding.severity is not Severity.FAIL, finding.blame not in REJECTS_A_NODE


def sentence(report: Report) -> str:
    """Return the headline without the verdict in front of it, for where that stands already."""
    told = line(report.headline)
    for word in (f"node {answer(report)}: ", f"{answer(report).replace('_', ' ')}: ", "ready with settings: "):
        told = told.removeprefix(word)
    return told


def reasons(report: Report) -> tuple[str, ...]:
    """Return what decided as sentences, most important first; why there is no answer stands before what was found."""
    told = [(f"{line(each.subject)}: {line(each.problem)}", f" [{line(each.check)}]") for each in deciding(report)]
    told += [(line(problem), "") for problem in report.problems]
    told += [
        (f"the check {line(each.check)} failed, a defect of preflight: {line(each.reason)}", "")
        for each in report.skipped_checks
        if each.crashed
    ]
    if not told or not is_bad(report):
        first = sentence(report)
        told = [(first, ""), *(each for each in told if each[0] not in first)]
    return tuple(dict.fromkeys(text + check for text, check in told))


def summary(report: Report) -> str:
    """Return on one line what a good answer rests on, or every reason against it; a simulated run is called one."""
    told = sentence(report) if is_good(report) else "; ".join(reasons(report))
    told = "; ".join([told, *waivers(report)])
    return f"{SIMULATED}: {told}" if report.simulated else told


def waivers(report: Report) -> tuple[str, ...]:
    """Return what the site's policy lets pass: every output says so."""
    told = (f"waived {line(each.waived)} [{line(each.check)} {line(each.subject)}]" for each in report.findings
            if each.waived)  # fmt: skip
    return tuple(dict.fromkeys(told))


def unfinished(report: Report) -> tuple[Phase, ...]:
    """Return the parts of the run that did not come to their end."""
    return tuple(phase for phase in report.phases if phase.end in (PhaseEnd.PARTIAL, PhaseEnd.NOT_REACHED))


def hosts(report: Report) -> str:
    """Return the names of the nodes, `an unknown host` where none was read."""
    return ", ".join(line(node.host) for node in report.nodes) or "an unknown host"
