"""Load a saved report or baseline from its JSON text."""

from __future__ import annotations

import re
from typing import TypeVar

from preflight.errors import MalformedInput
from preflight.model.baseline import BASELINE_SCHEMA, Baseline, Reference
from preflight.model.codec import decode
from preflight.model.facts import SETTABLE
from preflight.model.gap import known_or
from preflight.model.input_limits import BASELINE as BASELINE_FILE
from preflight.model.input_limits import REPORT, parse_json
from preflight.model.report import SCHEMA_VERSION, Report

T = TypeVar("T")
HOST = re.compile(r"[^\s\[\],;|&<>\"'`$\x00-\x1f\x7f]{0,255}")  # a hostlist's reader expands brackets and commas
VERSION, BASELINE = "schema_version", "baseline_schema"
MOST_SPREAD = 10.0  # of a logarithm: e^10 between good nodes would be no bound at all


def load_report(text: str, name: str = "the report") -> Report:
    """Return the report in the JSON text `text`.

    Raise MalformedInput if the text is not a report or has an unsupported schema version.
    """
    # The error message begins with `name`.
    return as_report(parse_json(text, REPORT, name), name)


def as_report(document: object, name: str) -> Report:
    """Return the report in `document`, a parsed JSON value. Raise MalformedInput if the value is not a report."""
    if not isinstance(document, dict) or VERSION not in document:
        raise MalformedInput(f"{name}: no report: it has no {VERSION!r}; give what `preflight check` wrote")
    _check_version(document[VERSION], name, "report", VERSION, SCHEMA_VERSION)
    if "verdict" not in document and "nodes" in document:
        raise MalformedInput(f"{name}: facts without a verdict, as `preflight probe` writes them, not a report")
    report = _decoded(Report, document, name, "report")
    _check_names(report, name)
    return report


def load_baseline(text: str, name: str = "the baseline") -> Baseline:
    """Return the baseline in the JSON text `text`. Raise MalformedInput if the baseline can't be used."""
    document = parse_json(text, BASELINE_FILE, name)
    if not isinstance(document, dict) or BASELINE not in document:
        raise MalformedInput(f"{name}: no baseline: it has no {BASELINE!r}; give what `preflight baseline` wrote")
    _check_version(document[BASELINE], name, "baseline", BASELINE, BASELINE_SCHEMA)
    baseline = _decoded(Baseline, document, name, "baseline")
    for place, each in enumerate(baseline.references):
        if not _is_possible(each):
            raise MalformedInput(f"{name}: no baseline: references[{place}] holds a value that nothing can have")
    if not baseline.references:
        raise MalformedInput(f"{name}: no baseline: it has no references")
    return baseline


def _decoded(kind: type[T], document: object, name: str, what: str) -> T:
    try:
        return decode(kind, document)
    except MalformedInput as error:
        raise MalformedInput(f"{name}: no {what} that can be read: {error}") from None
    except RecursionError:
        raise MalformedInput(f"{name}: no {what}: it is nested too deeply") from None


def _check_names(report: Report, name: str) -> None:
    """Raise MalformedInput if a variable or a host name in the report is unsafe.

    A shell may source the variables, and host lists may contain the host names. Special characters could do harm in
    both cases.
    """
    advice = report.advice
    variables = (
        *advice.env,
        *advice.gpu_env,
        *advice.timeout_env,
        *(pair for node in advice.nodes for pair in node.env),
    )
    for variable, value in variables:
        if not SETTABLE.fullmatch(variable):
            raise MalformedInput(f"{name}: no report: {variable[:40]!r} is no name of a variable")
        if not value.isprintable():
            raise MalformedInput(f"{name}: no report: the value of {variable[:40]} has control characters")
    for host in (*(node.host for node in report.nodes), *(node.host for node in advice.nodes)):
        if not HOST.fullmatch(host):
            raise MalformedInput(f"{name}: no report: {host[:40]!r} is no host name")


def _is_possible(each: Reference) -> bool:
    spreads = (each.between_nodes, known_or(each.between_repetitions, 0.0))
    sizes = 0 <= each.size_bytes < 1 << 60 and each.group in ("large", "small") and 0 < each.busbw_gb_s < 1e9
    counts = 1 < each.nodes < 1 << 30 and 1 <= each.repetitions < 1 << 30
    return sizes and counts and all(0 <= spread < MOST_SPREAD for spread in spreads)


def _check_version(version: object, name: str, what: str, key: str, ours: int) -> None:
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise MalformedInput(f"{name}: no {what}: its {key} is no positive whole number")
    if version != ours:
        # The number may have thousands of digits, which Python refuses to print.
        shown = str(version) if version < 10**9 else "a larger one"
        other = f"this preflight reads {ours}: use the preflight that wrote it"
        raise MalformedInput(f"{name}: {key} is {shown}, and {other}")
