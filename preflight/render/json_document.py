"""One JSON document: what a program reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from preflight.model.codec import GAPS, encode
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Finding, SkippedCheck
from preflight.model.fit import Fit
from preflight.model.job import Job
from preflight.model.report import SCHEMA_VERSION
from preflight.model.storage import StorageSpeed
from preflight.model.timeout import SafeTimeout, Timings
from preflight.plan.gpu_advice import GpuSetAdvice

if TYPE_CHECKING:
    from preflight.model.expected import Expected


def render_json(record: object) -> str:
    """Return a record as JSON in ASCII, with its gaps."""
    return _dump(encode(record))


def render_probe_json(
    node: NodeFacts,
    findings: Sequence[Finding],
    skipped: Sequence[SkippedCheck],
    gpu_set: GpuSetAdvice | None = None,
    expected: Expected | Gap | None = None,
) -> str:
    """Return the document of `preflight probe --json`; `gpu_set` and `expected` are null unless `--gpus` was given."""
    facts = encode(node)
    gaps = [{"fact": f"nodes[0].{gap['fact']}", "reason": gap["reason"]} for gap in facts[GAPS]]
    if isinstance(expected, Gap):
        gaps.append({"fact": "expected", "reason": expected.reason})
    return _dump(
        {
            "schema_version": SCHEMA_VERSION,
            "nodes": [facts],
            "gpu_set": None if gpu_set is None else _without_gaps(gpu_set),
            "expected": None if expected is None or isinstance(expected, Gap) else _without_gaps(expected),
            "findings": [_without_gaps(finding) for finding in findings],
            "skipped_checks": [_without_gaps(check) for check in skipped],
            GAPS: gaps,
        }
    )


def render_timeout_json(
    safe: SafeTimeout, job: Job, measured: Timings, storage: StorageSpeed | None, fit: Fit | Gap | None = None
) -> str:
    """Return the document of `preflight timeout --json`; the frameworks are an object by name."""
    answer = encode(safe)
    frameworks = {each.pop("name"): each for each in answer["frameworks"]}
    names = {f"frameworks[{place}]": f"frameworks.{name}" for place, name in enumerate(frameworks)}
    gaps = [{**gap, "fact": _renamed(gap["fact"], names)} for gap in answer.pop(GAPS)]
    inputs: dict[str, Any] = {"job": encode(job), "measured": encode(measured)}
    inputs["storage"] = None if storage is None else encode(storage)
    inputs["fit"] = encode(fit) if isinstance(fit, Fit) else None
    if isinstance(fit, Gap):
        gaps.append({"fact": "fit", "reason": fit.reason})
    for name, values in inputs.items():
        found = values.pop(GAPS) if values else []
        gaps += [{"fact": f"{name}.{gap['fact']}", "reason": gap["reason"]} for gap in found]
    return _dump({"schema_version": SCHEMA_VERSION, **answer, "frameworks": frameworks, **inputs, GAPS: gaps})


def _renamed(fact: str, names: dict[str, str]) -> str:
    head, dot, rest = fact.partition(".")
    return f"{names.get(head, head)}{dot}{rest}"


def _without_gaps(record: Finding | SkippedCheck | GpuSetAdvice | Expected) -> dict[str, Any]:
    encoded = encode(record)
    del encoded[GAPS]  # these hold no facts
    return encoded


def _dump(document: dict[str, Any]) -> str:
    # A NaN is not JSON; ASCII survives every locale and every lone surrogate of a file name.
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
