"""The JSON document of `preflight probe`."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.codec import GAPS, encode
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Finding, RanCheck, SkippedCheck
from preflight.model.links import Expected
from preflight.model.report import SCHEMA_VERSION
from preflight.search.gpus.gpu_set_advice import GpuSetAdvice
from preflight.show.json_document import below, dump, part


def render_probe_json(
    node: NodeFacts,
    findings: Sequence[Finding],
    skipped: Sequence[SkippedCheck],
    ran: Sequence[RanCheck],
    gpu_set: GpuSetAdvice | None = None,
    expected: Expected | Gap | None = None,
) -> str:
    """Return the JSON document of `preflight probe`.

    `gpu_set` and `expected` are null if `--gpus` was not given.
    """
    facts = encode(node)
    gaps = below("nodes[0]", facts[GAPS])
    document = {
        "schema_version": SCHEMA_VERSION,
        "nodes": [facts],
        "gpu_set": part("gpu_set", gpu_set, gaps),
        "expected": part("expected", expected, gaps),
        "findings": [part("findings", each, gaps) for each in findings],
        "skipped_checks": [part("skipped_checks", each, gaps) for each in skipped],
        "checks": [part("checks", each, gaps) for each in ran],
        GAPS: gaps,
    }
    return dump(document)
