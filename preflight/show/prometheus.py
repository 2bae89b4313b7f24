"""Metrics in Prometheus' text format, for node_exporter's textfile collector.

Write the text to a temporary file in the target's folder, then rename the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from preflight.model.facts import Gap
from preflight.model.finding import Blame, Severity
from preflight.model.report import NodeVerdict, Report, RunPhaseEnd, Verdict
from preflight.model.trial import Outcome
from preflight.show.checks_and_findings import outcome_counts
from preflight.show.text import clean, rfc3339
from preflight.show.verdict import hosts

Sample = tuple[dict[str, str], float]
DONE = (RunPhaseEnd.COMPLETED, RunPhaseEnd.NOT_NEEDED)
Metric = tuple[str, str, Iterable[Sample]]  # name, what it means, samples


def render_prometheus(report: Report) -> str:
    """Return the metrics of a report in Prometheus' text format.

    The names and labels of the metrics are stable.
    """
    lines: list[str] = []
    for name, text, samples in _metrics(report):
        distinct = _distinct(samples)
        if distinct:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", *(_sample(name, *each) for each in distinct)]
    return "\n".join(lines) + "\n"


def _metrics(report: Report) -> list[Metric]:
    about = {"version": report.preflight_version, "backend": report.backend, "profile": report.profile}
    node = None if isinstance(report.node_verdict, Gap) else report.node_verdict
    severities = [(blame, severity) for blame in Blame for severity in Severity]
    return [
        ("preflight_info", "What ran, on which hosts.", [({**about, "hosts": hosts(report)}, 1)]),
        ("preflight_run_timestamp_seconds", "When the run ended, in Unix time.", _when(report)),
        ("preflight_simulated", "1 if the run was simulated.", [({}, report.simulated)]),
        ("preflight_exit_code", "0 ready, 1 not ready, 3 inconclusive.", [({}, report.exit_code)]),
        ("preflight_verdict", "1 for the answer for the job; absent with --accept, because the node's decides.",
         [] if node else _one_of("verdict", Verdict, report.verdict)),
        ("preflight_node_verdict", "1 for the answer for the node; absent without --accept.",
         _one_of("verdict", NodeVerdict, node) if node else []),
        ("preflight_ranks", "Ranks that took part.", [({}, report.world_size)]),
        ("preflight_findings", "Findings by class and severity.", [
            ({"class": blame.value, "severity": severity.value},
             sum(each.blame is blame and each.severity is severity for each in report.findings))
            for blame, severity in severities
        ]),
        ("preflight_finding", "1 for each finding.", [
            ({"check": each.check, "class": each.blame.value, "severity": each.severity.value,
              "subject": each.subject}, 1) for each in report.findings
        ]),
        ("preflight_finding_waived", "1 for each finding that the site's policy lets pass.", [
            ({"check": each.check, "subject": each.subject, "waived": each.waived}, 1)
            for each in report.findings if each.waived
        ]),
        ("preflight_speed_judge", "1 for each source of speed limits.",
         [({"by": each.by.value}, 1) for each in report.judged_by]),
        *_beside_baseline(report),
        ("preflight_checks", "Checks by how they ended.",
         [({"outcome": outcome.value}, count) for outcome, count in outcome_counts(report.checks).items()]),
        ("preflight_check_outcome", "1 for how each check ended.",
         [({"check": each.check, "outcome": each.outcome.value}, 1) for each in report.checks]),
        ("preflight_check_skipped", "1 for each check that was inconclusive or not run.", [
            ({"check": each.check, "crashed": str(each.crashed).lower()}, 1) for each in report.skipped_checks
        ]),
        ("preflight_problems", "What preflight itself could not do.", [({}, len(report.problems))]),
        ("preflight_phase_completed", "1 for each part of the run that was completed.",
         [({"phase": each.name}, each.end in DONE) for each in report.phases]),
        ("preflight_duration_seconds", "How long each part took.",
         [({"phase": name}, seconds) for name, seconds in report.durations_s]),
        *_trial_metrics(report),
    ]  # fmt: skip


def _beside_baseline(report: Report) -> list[Metric]:
    shares, floors = [], []
    for each in report.beside_baseline:
        size = str(each.reference.size_bytes) if each.reference.size_bytes else f"all {each.reference.group}"
        labels = {"collective": each.reference.collective.value, "size_bytes": size}
        shares.append((labels, each.share))
        floors.append((labels, each.floor))
    return [
        ("preflight_baseline_ratio", "Speed over what good nodes reach, over all repetitions.", shares),
        ("preflight_baseline_floor_ratio", "The minimum share that is accepted.", floors),
    ]


def _trial_metrics(report: Report) -> list[Metric]:
    busbw, median, p95, wrong = [], [], [], []
    for trial in report.trials:
        for result in trial.results:
            labels = {"candidate": trial.candidate, "collective": result.collective.value,
                      "size_bytes": str(result.size_bytes)}  # fmt: skip
            busbw += _known(labels, result.busbw_gb_s, 1e9)
            median += _known(labels, result.median_us, 1e-6)
            p95 += _known(labels, result.p95_us, 1e-6)
            wrong.append((labels, float(result.wrong_elements)))
    trials = report.trials
    outcomes = [({"candidate": each.candidate, "outcome": each.outcome.value}, each.outcome is Outcome.OK)
                for each in trials]  # fmt: skip
    return [
        ("preflight_trial_ok", "1 if the trial of the configuration worked.", outcomes),
        ("preflight_trial_duration_seconds", "How long the trial of the configuration took.",
         [({"candidate": trial.candidate}, trial.duration_s) for trial in trials]),
        ("preflight_busbw_bytes_per_second", "Bus bandwidth, as nccl-tests defines it.", busbw),
        ("preflight_collective_median_seconds", "Median over the repetitions of the slowest rank.", median),
        ("preflight_collective_p95_seconds", "95th percentile of the same.", p95),
        ("preflight_wrong_elements", "Elements of the answer that were wrong.", wrong),
    ]  # fmt: skip


def _known(labels: dict[str, str], value: float | Gap, unit: float) -> list[Sample]:
    return [] if isinstance(value, Gap) else [(labels, value * unit)]


def _when(report: Report) -> Sequence[Sample]:
    at = rfc3339(report.created_at)
    return [({}, datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp())] if at else []


def _one_of(label: str, kind: type[Verdict] | type[NodeVerdict], value: Verdict | NodeVerdict) -> Sequence[Sample]:
    return [({label: each.value}, float(each is value)) for each in kind]


def _distinct(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples without duplicates. Of several samples with equal labels, only the first is kept.

    Prometheus refuses a file with duplicate series.
    """
    kept: dict[tuple[tuple[str, str], ...], Sample] = {}
    for labels, value in samples:
        kept.setdefault(tuple((name, clean(text)) for name, text in labels.items()), (labels, value))
    return list(kept.values())


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    escaped = {key: clean(text).replace("\\", "\\\\").replace('"', '\\"') for key, text in labels.items()}
    inside = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    return f"{name}{{{inside}}} {float(value):.10g}" if inside else f"{name} {float(value):.10g}"
