"""The report of a run that has no answer yet, or never got one: exit 3, or the signal's code, and why."""

from __future__ import annotations

from preflight.judge.run.verdict import EXIT_CODES
from preflight.model.advice import Advice
from preflight.model.facts import Gap
from preflight.model.report import SCHEMA_VERSION, NodeVerdict, Report, Verdict


def unanswered(
    why: str, exit_code: int | None, *, version: str, created_at: str, backend: str, profile: str, accept: bool
) -> Report:
    """Return a report that says why it holds nothing; what is known is put into it by whoever knows it."""
    return Report(
        schema_version=SCHEMA_VERSION,
        preflight_version=version,
        created_at=created_at,
        verdict=Verdict.UNKNOWN,
        node_verdict=NodeVerdict.UNKNOWN if accept else Gap("not asked for: --accept was not given"),
        exit_code=EXIT_CODES[Verdict.UNKNOWN] if exit_code is None else exit_code,
        headline=f"unknown: {why}",
        simulated=False,
        backend=backend,
        profile=profile,
        world_size=0,
        nodes=(),
        trials=(),
        comparisons=(),
        left_out=(),
        findings=(),
        skipped_checks=(),
        problems=(why,),
        advice=Advice((), (), (), (), Gap(why), Gap(why), (), "nothing can be recommended: the run has no answer"),
        durations_s=(),
    )
