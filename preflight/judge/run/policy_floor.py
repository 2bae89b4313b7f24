"""A collective that is slower than the site's policy allows."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.errors import UnreadableFact
from preflight.judge.check import Case, RunCheck
from preflight.model.facts import known
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.trial import DEFAULT
from preflight.model.units import rate_text, size_text


def judge(case: Case) -> Iterator[Finding]:
    """Yield a failure for each floor that the default settings miss; a floor without a figure is a missing fact."""
    if case.policy is None or not case.trials:
        return
    results = [result for trial in case.trials if trial.candidate == DEFAULT for result in trial.results]
    for floor in case.policy.floors:
        what = f"{floor.collective.value} {size_text(floor.size_bytes)}"
        same = [r for r in results if r.collective is floor.collective and r.size_bytes == floor.size_bytes]
        if not same:
            raise UnreadableFact(f"the policy has a floor for {what}, which this profile did not measure")
        best = max(known(result.busbw_gb_s) for result in same)
        if best < floor.busbw_gb_s:
            yield Finding(
                check=CHECK.name,
                blame=CHECK.blame,
                severity=Severity.FAIL,
                subject=what,
                problem=f"{rate_text(best)}, but the policy demands at least {rate_text(floor.busbw_gb_s)}",
                fix="see which rank or link is slow in the report; compare with `preflight fleet`",
                evidence=(
                    Evidence("busbw", rate_text(best), f"trial '{DEFAULT}'"),
                    Evidence("floor", rate_text(floor.busbw_gb_s), case.policy.source),
                ),
            )


CHECK = RunCheck(
    name="policy-floor",
    promise="the default settings reach the bandwidth that the policy demands",
    blame=Blame.FABRIC,
    reads=("trials",),
    blind_to="sizes without a floor, and everything without --policy",
    judge=judge,
)
