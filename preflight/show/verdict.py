"""The verdict of a report and the problems that decided the verdict."""

from __future__ import annotations

from dataclasses import replace

from preflight.model.facts import Gap
from preflight.model.finding import REJECTS_A_NODE, Finding, Severity
from preflight.model.report import NodeVerdict, Report, RunPhase, RunPhaseEnd, Verdict
from preflight.model.trial import Outcome
from preflight.model.units import seconds_text, size_text
from preflight.show.document import Block, Items, Text, answer_line, section
from preflight.show.text import line

SIMULATED = "SIMULATED"
NODE_WORDS = {
    NodeVerdict.ACCEPT: ("NODE ACCEPTED", "green"),
    NodeVerdict.REJECT: ("NODE REJECTED", "red"),
    NodeVerdict.UNKNOWN: ("NODE UNKNOWN", "yellow"),
}
WORDS = {
    Verdict.READY: ("READY", "green"),
    Verdict.READY_WITH_ENV: ("READY WITH SETTINGS", "green"),
    Verdict.NOT_READY: ("NOT READY", "red"),
    Verdict.UNKNOWN: ("UNKNOWN", "yellow"),
}

CAUSES = ("p2p-data", "trial-failed")


def verdict_section(report: Report, most_lines: int | None = None) -> list[Block]:
    """Return the verdict with its reason, after a note on what was not tested.

    The verdict takes at most `most_lines` lines. None means no limit.
    """
    blocks: list[Block] = []
    if report.simulated:
        blocks.append(
            Text(f"{SIMULATED}: the backend {report.backend} is a stand-in, so the verdict is not about this machine.")
        )
    if report.backend == "gloo":
        ranks = f"{report.world_size} rank{'' if report.world_size == 1 else 's'}"
        nodes = f" of {len(report.nodes)} nodes" if len(report.nodes) > 1 else ""
        has_run = report.world_size > 0 and any(trial.outcome is not Outcome.SKIPPED for trial in report.trials)
        tried = f"gloo over {ranks}{nodes}" if has_run else "gloo; no trial was completed"
        blocks.append(Text(f"CPU path: {tried}; GPUs and NCCL were not tested."))
    if report.narrowed:
        blocks.append(Text(f"Reduced check ({line(report.narrowed)}): a full check covers more"))
    blocks.append(replace(answer_line(answer(report), tone(report), sentence(report)), most_lines=most_lines))
    if not isinstance(report.node_verdict, Gap):
        covered = covers(report) if is_good(report) else ""
        blocks.append(Text(f"Job verdict: {WORDS[report.verdict][0].lower()}{covered and f' ({covered})'}"))
    return blocks


def covers(report: Report) -> str:
    """Return what was tested, such as `8 ranks on 2 nodes, 40 s of trials, messages up to 1 GiB, NCCL 2.29.7`.

    The result is "" if no test run worked.
    """
    worked = [trial for trial in report.trials if trial.outcome is Outcome.OK and trial.results]
    if not worked:
        return ""
    ranks = f"{report.world_size} rank{'' if report.world_size == 1 else 's'}"
    nodes = f" on {len(report.nodes)} nodes" if len(report.nodes) > 1 else ""
    largest = max(result.size_bytes for trial in worked for result in trial.results)
    tried_s = sum(trial.duration_s for trial in worked)
    parts = (
        f"{ranks}{nodes}",
        f"{seconds_text(tried_s)} of trials",
        f"messages up to {size_text(largest)}",
        _versions(report),
    )
    return ", ".join(filter(None, parts))


def _versions(report: Report) -> str:
    """Return the version of NCCL that the ranks loaded, or the version of torch if the backend is gloo.

    Return "" if the version is unknown.
    """
    loaded = sorted({line(trial.nccl) for trial in report.trials if trial.nccl})
    torch = next((software.torch for node in report.nodes if not isinstance(software := node.software, Gap)), Gap(""))
    if isinstance(torch, Gap):
        return f"NCCL {', '.join(loaded)}" if loaded else ""
    if report.backend == "gloo":
        return f"torch {line(torch.version)}"
    loaded = loaded or ([line(torch.nccl)] if not isinstance(torch.nccl, Gap) else [])
    return f"NCCL {', '.join(loaded)}" if loaded else ""


def unfinished_section(report: Report) -> list[Block]:
    """Return a block that lists the parts of the run that did not finish."""
    cut = [(each.name, f"({end_text(each)}): {each.detail}") for each in unfinished(report)]
    return section("Not finished", Items(cut))


def end_text(phase: RunPhase) -> str:
    """Return how a phase of the run ended, such as `not reached` or `partial`."""
    return phase.end.value.replace("_", " ")


def answer(report: Report) -> str:
    """Return the verdict as text: with --accept the verdict on the node, otherwise the verdict on the job."""
    return _answer(report)[0]


def tone(report: Report) -> str:
    """Return the name of the color in which the verdict is printed: green, red or yellow."""
    return _answer(report)[1]


def _answer(report: Report) -> tuple[str, str]:
    return WORDS[report.verdict] if isinstance(report.node_verdict, Gap) else NODE_WORDS[report.node_verdict]


def is_good(report: Report) -> bool:
    """Return whether the verdict is ready (with or without settings) or accept."""
    if isinstance(report.node_verdict, Gap):
        return report.verdict in (Verdict.READY, Verdict.READY_WITH_ENV)
    return report.node_verdict is NodeVerdict.ACCEPT


def is_bad(report: Report) -> bool:
    """Return whether the verdict is not_ready or reject."""
    if isinstance(report.node_verdict, Gap):
        return report.verdict is Verdict.NOT_READY
    return report.node_verdict is NodeVerdict.REJECT


def headline(report: Report) -> str:
    """Return the report's headline as one line, with a mark if the run is simulated."""
    return f"{SIMULATED}: {line(report.headline)}" if report.simulated else line(report.headline)


def deciding(report: Report) -> tuple[Finding, ...]:
    """Return the failures of a report, with the failures of the node first.

    Warnings are included if no failure explains a bad verdict.
    """
    failing = [each for each in report.findings if each.severity is Severity.FAIL]
    of_the_node = isinstance(report.node_verdict, NodeVerdict)
    if is_bad(report) and not any(each.blame in REJECTS_A_NODE or not of_the_node for each in failing):
        # With --strict, and for a fault that was worked round, a warning rejects.
        failing += [each for each in report.findings if each.severity is Severity.WARN]
    return tuple(sorted(failing, key=_weight))


def by_weight(report: Report) -> tuple[Finding, ...]:
    """Return all findings: first the findings that decided the verdict, then the other findings by severity."""
    order, decided = list(Severity), deciding(report)
    others = [each for each in report.findings if each not in decided]
    others.sort(
        key=lambda each: (
            order.index(each.severity),
            each.check not in CAUSES,
            each.check not in CAUSES[:1],
            each.blame not in REJECTS_A_NODE,
        )
    )
    return (*decided, *others)


def _weight(finding: Finding) -> tuple[bool, bool]:
    return finding.severity is not Severity.FAIL, finding.blame not in REJECTS_A_NODE


def sentence(report: Report) -> str:
    """Return the report's headline without the verdict."""
    return line(report.headline).removeprefix(f"{answer(report).lower()}: ")


def reasons(report: Report) -> tuple[str, ...]:
    """Return the reasons for the verdict as sentences, the most important first."""
    found = [(f"{line(each.subject)}: {line(each.problem)}", f" [{line(each.check)}]") for each in deciding(report)]
    found += [(line(problem), "") for problem in report.problems]
    found += [
        (
            f"the check {line(each.check)} crashed, a defect in preflight, not in the node: {line(each.reason)}",
            "",
        )
        for each in report.skipped_checks
        if each.crashed
    ]
    if not found or not is_bad(report):
        first = sentence(report)
        found = [(first, ""), *(each for each in found if each[0] not in first)]
    return tuple(dict.fromkeys(text + check for text, check in found))


def summary(report: Report) -> str:
    """Return the reasons for the verdict as one line, with a mark if the run is simulated."""
    text = sentence(report) if is_good(report) else "; ".join(reasons(report))
    text = "; ".join([text, *waivers(report)])
    return f"{SIMULATED}: {text}" if report.simulated else text


def waivers(report: Report) -> tuple[str, ...]:
    """Return a text for each problem that the site's policy accepts."""
    waived = [each for each in report.findings if each.waived]
    words = (f"waived {line(each.waived)} [{line(each.check)} {line(each.subject)}]" for each in waived)
    return tuple(dict.fromkeys(words))


def unfinished(report: Report) -> tuple[RunPhase, ...]:
    """Return the parts of the run that did not finish."""
    return tuple(phase for phase in report.phases if phase.end in (RunPhaseEnd.PARTIAL, RunPhaseEnd.NOT_REACHED))


def hosts(report: Report) -> str:
    """Return the names of the nodes, or `an unknown host` if no node was read."""
    return ", ".join(line(node.host) for node in report.nodes) or "an unknown host"
