"""The RDMA ports of a node, one at a time: a trial each, told apart from the trials that candidates get."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from preflight.model.collective import Collective
from preflight.model.facts import Gap, HcaPort
from preflight.model.rail import RailTest
from preflight.model.trial import Candidate, Outcome, TrialResult
from preflight.plan.rails import rail_candidates

NOT_MEASURED = Gap("it carried nothing that could be measured")


def try_rails(
    rails: Sequence[HcaPort], attempt: Callable[[Candidate], TrialResult], why_no_time: Callable[[], str]
) -> list[RailTest]:
    """Return what each port showed; those for which no time was left are skipped, with the reason."""
    found = []
    for port, candidate in zip(rails, rail_candidates(tuple(rails)), strict=True):
        why = why_no_time()
        if why:
            found.append(RailTest(port.hca, port.port, port.rate_gbit_s, Outcome.SKIPPED, why, (), NOT_MEASURED))
        else:
            found.append(_rail_test(port, attempt(candidate)))
    return found


def _rail_test(port: HcaPort, result: TrialResult) -> RailTest:
    measured = [each for each in result.results if each.collective is Collective.ALL_REDUCE]
    largest = max(measured, key=lambda each: each.size_bytes, default=None)
    works = result.outcome is Outcome.OK and largest is not None
    return RailTest(
        port.hca, port.port, port.rate_gbit_s, result.outcome, result.problem, _carriers(result.transport),
        largest.busbw_gb_s if works and largest is not None else NOT_MEASURED,
    )  # fmt: skip


def _carriers(transport: Sequence[str]) -> tuple[str, ...]:
    """Return what carried the data between any two ranks, of entries such as `0>1 via NET/IB/0`."""
    return tuple(sorted({each.partition(" via ")[2] for each in transport if " via " in each}))
