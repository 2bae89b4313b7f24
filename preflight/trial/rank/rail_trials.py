"""Test the RDMA ports of a node one at a time, each port in its own test run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from preflight.model.collective import Collective
from preflight.model.facts import Gap, HcaPort
from preflight.model.run_spec import Measure
from preflight.model.transport import path_names
from preflight.model.trial import FAILED, Candidate, Outcome, RailTest, TrialResult
from preflight.search.settings.rdma import rail_candidates

MOST_HANGS = 2
LARGEST_BYTES = 64 << 20  # enough for a port's full speed; eight ports at 4 GiB took minutes
SLOW_BELOW = 0.8  # as judge/run/rail.py warns
NOT_MEASURED = Gap("it carried nothing that could be measured")


def rail_measures(measures: Sequence[Measure]) -> tuple[Measure, ...]:
    """Return `measures` for a test run on one RDMA port, with sizes of at most LARGEST_BYTES."""
    return tuple(replace(each, nominal_bytes=min(each.nominal_bytes, LARGEST_BYTES)) for each in measures)


def try_rails(
    rails: Sequence[HcaPort], attempt: Callable[[Candidate], TrialResult], why_no_more: Callable[[], str]
) -> list[RailTest]:
    """Test the RDMA ports `rails` one after another, and return the results in order.

    The callable `why_no_more` returns why no test run may start now, or "".
    """
    # Slow or failed ports are tested again. `attempt` makes a test run. If the first MOST_HANGS ports all hang, the
    # other ports are skipped to save time.
    found: list[RailTest] = []
    for port, candidate in zip(rails, rail_candidates(tuple(rails)), strict=True):
        all_hang = [rail.outcome for rail in found[:MOST_HANGS]] == [Outcome.HANG] * MOST_HANGS
        why = why_no_more() or (f"the first {MOST_HANGS} ports all hung" if all_hang else "")
        if why:
            found.append(RailTest(port.hca, port.port, port.rate_gbit_s, Outcome.SKIPPED, why, (), NOT_MEASURED))
        else:
            found.append(_rail_test(port, attempt(candidate)))
    return [*found, *_again(rails, found, attempt, why_no_more)]


def _again(
    rails: Sequence[HcaPort],
    found: Sequence[RailTest],
    attempt: Callable[[Candidate], TrialResult],
    why_no_more: Callable[[], str],
) -> Iterator[RailTest]:
    """Test ports again that failed or were slow while other ports work.

    A single failure does not prove a fault.
    """
    for place in slow_or_failed(found):
        if why_no_more():
            return
        port = rails[place]
        (candidate,) = rail_candidates((port,))
        yield replace(_rail_test(port, attempt(candidate)), repetition=1)


def slow_or_failed(found: Sequence[RailTest]) -> list[int]:
    """Return the indices of ports that failed or are slower than ports of the same rate, or [] if no port works."""
    speeds = [rail.busbw_gb_s if rail.outcome is Outcome.OK else Gap(rail.problem) for rail in found]
    places = []
    for place, (rail, speed) in enumerate(zip(found, speeds, strict=True)):
        others = [
            other
            for i, other in enumerate(speeds)
            if i != place and found[i].rate_gbit_s == rail.rate_gbit_s and not isinstance(other, Gap)
        ]
        is_slow = not isinstance(speed, Gap) and bool(others) and speed < SLOW_BELOW * median(others)
        if is_slow or (rail.outcome in FAILED and not all(isinstance(each, Gap) for each in speeds)):
            places.append(place)
    return places


def _rail_test(port: HcaPort, result: TrialResult) -> RailTest:
    measured = [each for each in result.results if each.collective is Collective.ALL_REDUCE]
    largest = max(measured, key=lambda each: each.size_bytes, default=None)
    works = result.outcome is Outcome.OK and largest is not None
    return RailTest(
        port.hca, port.port, port.rate_gbit_s, result.outcome, result.problem, path_names(result.transport),
        largest.busbw_gb_s if works and largest is not None else NOT_MEASURED,
    )  # fmt: skip
