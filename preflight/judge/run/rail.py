from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from preflight.errors import NotApplicable, NotRun, UnreadableFact
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.gpu_test_results import laggards
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import Gap, known_or
from preflight.model.finding import Blame, Evidence, Finding, Severity, Unseen
from preflight.model.parts import part_of_port
from preflight.model.trial import FAILED, Outcome, RailTest
from preflight.model.units import rate_text

WARN_BELOW = Bound(
    0.80, "of the median speed of the other ports with its rate; a slower port is a WARN",
    "ports of one rate on one node differ by a few percent",
    JUDGMENT,
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
FAIL_BELOW = Bound(
    0.50, "of the median speed of the other ports with its rate; a slower port is a FAIL",
    "a port at half its rate halves the speed of every job between nodes",
    JUDGMENT,
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
OVER_RDMA = "NET/IB"
ALIKE = Bound(
    3, "working ports of one rate",
    "three or more ports of one rate are the rails of a compute fabric; fewer ports may have another purpose",
    JUDGMENT,
    "too low: a port for storage is blamed; too high: a broken rail of a small node only warns",
)  # fmt: skip
FIX = (
    "check this port's rate, width and symbol errors (`ibstat`, `ibqueryerrors`, `ethtool -S`), its cable and its "
    "switch port. Then check its PCIe slot with `nvidia-smi topo -m`"
)


@run_check(
    "rail",
    blame=Blame.FABRIC,
    unseen=Unseen.ACCEPTANCE,
    reads=("rails", "nodes"),
    bounds=(WARN_BELOW, FAIL_BELOW, ALIKE),
)
def rail(case: Case) -> Findings:
    """Each RDMA port alone carries data between the node's GPUs, as fast as the other ports with its rate.

    Yields a FAIL for a port that failed although three ports with its rate work, or that is far slower. Yields a WARN
    for other failed ports, and for a port that was slower than the others in both tests.

    Can't see: the path to other nodes, and how ports affect each other.
    """
    # A port that failed or was slow is tested again. If the fault did not occur again, the verdict is unknown.
    if case.rails is None:
        raise NotApplicable("no test of single RDMA ports was requested")
    if isinstance(case.rails, Gap):
        raise NotRun(case.rails.reason)
    first = [rail for rail in case.rails if not rail.repetition]
    again = {_called(rail): rail for rail in case.rails if rail.repetition}
    worked = [rail for rail in first if rail.outcome is Outcome.OK]
    over_rdma = [rail for rail in worked if any(each.startswith(OVER_RDMA) for each in rail.transport)]
    yield from _failed(case, [rail for rail in first if rail.outcome in FAILED], over_rdma, again)
    yield from _slow(case, over_rdma, again)
    untried = [rail for rail in first if rail.outcome is Outcome.SKIPPED]
    if untried:
        raise UnreadableFact(f"{_called(untried[0])}: {untried[0].problem}")
    elsewhere = [rail for rail in worked if rail not in over_rdma]
    if elsewhere:
        detail = ", ".join(elsewhere[0].transport) or "a transport that its log does not name"
        raise UnreadableFact(f"{_called(elsewhere[0])}: the data went over {detail}")


def _failed(
    case: Case, failed: Sequence[RailTest], over_rdma: Sequence[RailTest], again: Mapping[str, RailTest]
) -> Findings:
    if failed and not over_rdma:  # the way back into the same node may be closed while the fabric is fine
        yield _finding(
            case, ", ".join(map(_called, failed)), Severity.WARN,
            f"none of the RDMA ports carries data between this node's own GPUs: {failed[0].problem}", failed[0],
        )  # fmt: skip
        return
    for rail in failed:
        alike = sum(each.rate_gbit_s == rail.rate_gbit_s for each in over_rdma)
        others = f"while {len(over_rdma)} of this node's other RDMA ports work ({alike} with the same rate)"
        severity = Severity.FAIL if alike >= ALIKE.value else Severity.WARN
        second = again.get(_called(rail))
        came_again = second is not None and second.outcome in FAILED
        often = "" if second is None else " in both tests" if came_again else " in one of two tests"
        finding = _finding(
            case, _called(rail), severity, f"the port fails alone{often}, {others}: {rail.problem}", rail
        )
        yield replace(finding, is_unconfirmed=severity is Severity.FAIL and not came_again)


def _slow(case: Case, rails: Sequence[RailTest], again: Mapping[str, RailTest]) -> Findings:
    speeds = {i: rail.busbw_gb_s for i, rail in enumerate(rails) if not isinstance(rail.busbw_gb_s, Gap)}
    rates = {i: "" if isinstance(rail.rate_gbit_s, Gap) else f"{rail.rate_gbit_s}" for i, rail in enumerate(rails)}
    for i, speed, middle in laggards(speeds, rates, WARN_BELOW.value):
        second = again.get(_called(rails[i]))
        best = max(speed, 0.0 if second is None else known_or(second.busbw_gb_s, 0.0))
        came_again = second is not None and best < WARN_BELOW.value * middle
        shown = best if came_again else speed
        severity = Severity.FAIL if shown < FAIL_BELOW.value * middle else Severity.WARN
        if second is not None and not came_again and severity is Severity.WARN:
            continue
        often = "" if second is None else " in both tests" if came_again else f" once, then {rate_text(best)}"
        detail = f"the port carries {rate_text(shown)} alone{often}, vs a median of {rate_text(middle)}"
        finding = _finding(case, _called(rails[i]), severity, f"{detail} ({shown / middle:.0%})", rails[i])
        yield replace(finding, is_unconfirmed=severity is Severity.FAIL and not came_again)


def _finding(case: Case, subject: str, severity: Severity, problem: str, test: RailTest) -> Finding:
    return rail.finding(
        severity,
        f"{case.nodes[0].host} {subject}",
        problem,
        FIX,
        Evidence("outcome", test.outcome.value, f"trial rail {_called(test)}"),
        parts=part_of_port(case.nodes[0], test.hca, test.port),
    )


def _called(rail: RailTest) -> str:
    return f"{rail.hca}:{rail.port}"
