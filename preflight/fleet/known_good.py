"""Select the reports of known-good nodes for a baseline.

A report counts if its node was ready, if the speeds are not simulated, and if the default settings succeeded.
"""
# All nodes must have equal hardware.

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from preflight.errors import MalformedInput, UsageError
from preflight.fleet.baseline import Measured, learn, nodes_to_detect, own_rejected
from preflight.model.baseline import (
    MOST_REPEATS,
    Reference,
    difference,
    false_rejections,
    floor_share,
    hardware_class_of,
    repetitions_of,
    software_of,
)
from preflight.model.facts import Gap, known_or
from preflight.model.fleet import Learnt, LearntBound, Unread
from preflight.model.report import NodeVerdict, Report, Verdict
from preflight.model.saved_report import as_report

MOST_NAMED = 3
SIGNALS = 128  # exit codes from here on are signals
LOSS = 0.05


def learn_from(documents: Iterable[tuple[str, object, str]]) -> Learnt:
    """Return a baseline from the reports of known-good nodes.

    `documents` has (path, document, problem) for each report. Raise UsageError if the hardware differs, or if there are
    too few good nodes.
    """
    # A report that can't be used is listed with the reason.
    measured: Measured = {}
    left_out: list[Unread] = []
    software: dict[str, set[str]] = {}
    first, reports = "", 0
    hardware: tuple[tuple[str, str], ...] = ()
    for path, document, problem in documents:
        report, why = (None, problem) if problem else _report(document, path)
        why = why if report is None else why_not_good(report)
        if report is None or why:
            left_out.append(Unread(path, why))
            continue
        kind = _hardware(report)
        differs = difference(kind, hardware) if hardware else ""
        if differs:
            raise UsageError(
                f"mixed hardware: {path} has {differs} as in {first}; make one baseline for each kind of node"
            )
        first, hardware, reports = first or path, kind, reports + 1
        for name, value in software_of(report.nodes[0]):
            software.setdefault(name, set()).add(value)
        measured.setdefault(report.nodes[0].host, []).extend(repetitions_of(report.trials))
    try:
        baseline = replace(learn(hardware, measured), software=_joined(software))
    except UsageError as error:
        reasons = dict.fromkeys(each.reason for each in left_out)
        left = f"; {len(left_out)} reports were left out: {'; '.join(list(reasons)[:MOST_NAMED])}" if left_out else ""
        raise UsageError(f"{error}{left}") from None
    bounds = tuple(_bound(baseline.references, each) for each in baseline.references)
    return Learnt(baseline, bounds, reports, tuple(left_out), own_rejected(baseline, measured))


def _joined(software: dict[str, set[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, ", ".join(sorted(versions))) for name, versions in software.items())


def why_not_good(report: Report) -> str:
    """Return why `report` can't be used for a baseline of known-good nodes, or "" if the report can be used."""
    if report.simulated:
        return "simulated, so its speeds are not measurements"
    if report.exit_code >= SIGNALS:
        return "interrupted before it finished"
    if len(report.nodes) != 1:
        return f"a run of {len(report.nodes)} nodes, so it has no speed of a single node"
    if report.verdict not in (Verdict.READY, Verdict.READY_WITH_ENV):
        return f"{report.verdict.value.replace('_', ' ')}, so the node is not known to be good"
    if report.node_verdict in (NodeVerdict.REJECT, NodeVerdict.UNKNOWN):
        return f"node {report.node_verdict.value}, so the node is not known to be good"
    bad = "its default settings failed, were not tried, or shared the GPUs with other jobs"
    return "" if repetitions_of(report.trials) else bad


def _bound(references: tuple[Reference, ...], each: Reference) -> LearntBound:
    floor = floor_share(each, MOST_REPEATS, false_rejections(references, each))
    return LearntBound(each, floor, nodes_to_detect(references, each, LOSS))


def _report(document: object, path: str) -> tuple[Report | None, str]:
    try:
        return as_report(document, path), ""
    except MalformedInput as error:
        return None, str(error).removeprefix(f"{path}: ")


def _hardware(report: Report) -> tuple[tuple[str, str], ...]:
    node = report.nodes[0]
    gpus = [gpu for gpu in known_or(node.gpus, ()) if gpu.uuid in report.advice.gpus]
    architecture = node.system if isinstance(node.system, Gap) else node.system.architecture
    return hardware_class_of(report.backend, report.world_size, architecture, gpus)
