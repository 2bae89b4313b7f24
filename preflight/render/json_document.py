"""One JSON document: what a program reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from preflight.model.codec import GAPS, encode
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Finding, RanCheck, SkippedCheck
from preflight.model.fit import Fit
from preflight.model.job import Job
from preflight.model.links import Expected
from preflight.model.report import SCHEMA_VERSION
from preflight.model.storage import StorageSpeed
from preflight.model.timeout import SafeTimeout, Timings
from preflight.plan.gpus.gpu_set_advice import GpuSetAdvice


def render_json(record: object) -> str:
    """Return a record as JSON in ASCII, with its gaps."""
    return _dump(encode(record))


def render_probe_json(
    node: NodeFacts,
    findings: Sequence[Finding],
    skipped: Sequence[SkippedCheck],
    ran: Sequence[RanCheck],
    gpu_set: GpuSetAdvice | None = None,
    expected: Expected | Gap | None = None,
) -> str:
    """Return the document of `preflight probe --json`; `gpu_set` and `expected` are null unless `--gpus` was given."""
    facts = encode(node)
    gaps = _below("nodes[0]", facts[GAPS])
    document = {
        "schema_version": SCHEMA_VERSION,
        "nodes": [facts],
        "gpu_set": _part("gpu_set", gpu_set, gaps),
        "expected": _part("expected", expected, gaps),
        "findings": [_part("findings", each, gaps) for each in findings],
        "skipped_checks": [_part("skipped_checks", each, gaps) for each in skipped],
        "checks": [_part("checks", each, gaps) for each in ran],
        GAPS: gaps,
    }
    return _dump(document)


def render_timeout_json(
    safe: SafeTimeout, job: Job, measured: Timings, storage: StorageSpeed | None, fit: Fit | Gap | None = None
) -> str:
    """Return the document of `preflight timeout --json`; the frameworks are an object by name."""
    answer = encode(safe)
    gaps = answer.pop(GAPS)
    frameworks = {each.pop("name"): each for each in answer["frameworks"]}
    for place, name in enumerate(frameworks):
        start = f"frameworks[{place}]."
        gaps = [{**gap, "fact": gap["fact"].replace(start, f"frameworks.{name}.")} for gap in gaps]
    if isinstance(fit, Gap):
        gaps.append({"fact": "fit", "reason": fit.reason})
    inputs = {
        "job": _part("job", job, gaps),
        "measured": _part("measured", measured, gaps),
        "storage": _part("storage", storage, gaps),
        "fit": None if isinstance(fit, Gap) else _part("fit", fit, gaps),
    }
    return _dump({"schema_version": SCHEMA_VERSION, **answer, "frameworks": frameworks, **inputs, GAPS: gaps})


def _part(name: str, record: object, gaps: list[dict[str, str]]) -> dict[str, Any] | None:
    """Return a part of the document; what it lacks is added to the document's gaps."""
    if isinstance(record, Gap):
        gaps.append({"fact": name, "reason": record.reason})
    if record is None or isinstance(record, Gap):
        return None
    encoded = encode(record)
    gaps += _below(name, encoded.pop(GAPS))
    return encoded


def _below(name: str, gaps: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return [{"fact": f"{name}.{gap['fact']}", "reason": gap["reason"]} for gap in gaps]


def _dump(document: dict[str, Any]) -> str:
    # A NaN is not JSON; ASCII survives every locale and every lone surrogate of a file name.
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
