from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from preflight.errors import NotApplicable, NotRun, UnreadableFact
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.gpu_test_results import laggards
from preflight.judge.seen_again import part_of_port
from preflight.model.facts import Gap, known_or
from preflight.model.finding import Blame, Evidence, Finding, Severity, Unseen
from preflight.model.trial import FAILED, Outcome, RailTest

WARN_BELOW = 0.80
FAIL_BELOW = 0.50
OVER_RDMA = "NET/IB"
ALIKE = 3  # ports of one rate that work: rails of a compute fabric; a lone other port may be there for something else
FIX = (
    "`ibstat`, `ibqueryerrors` or `ethtool -S` of this port: rate, width, symbol errors, cable and switch port; then "
    "`nvidia-smi topo -m` for its PCIe slot"
)


@run_check("rail", blame=Blame.FABRIC, unseen=Unseen.ACCEPTANCE, reads=("rails", "nodes"))
def rail(case: Case) -> Findings:
    """Each RDMA port alone carries data between the node's GPUs, as fast as the others of its rate.

    An RDMA port that fails, or is slower than its siblings, holds up every job that runs on several nodes. Each such
    port is tried again. Yields a finding for each that failed, and for each that is slower than the others of its rate;
    what came once of two times is a warning that leaves the node unknown.

    Can't see: the way to other nodes, and what ports do to each other.
    """
    if case.rails is None:
        raise NotApplicable("no test of single RDMA ports was asked for")
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
        detail = ", ".join(elsewhere[0].transport) or "nothing that its log names"
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
        others = f"while {len(over_rdma)} of this node's other RDMA ports work, {alike} of them of its rate"
        severity = Severity.FAIL if alike >= ALIKE else Severity.WARN
        second = again.get(_called(rail))
        came_again = second is not None and second.outcome in FAILED
        often = "" if second is None else ", twice" if came_again else ", once of two times"
        finding = _finding(case, _called(rail), severity, f"fails alone{often}, {others}: {rail.problem}", rail)
        yield replace(finding, is_unconfirmed=severity is Severity.FAIL and not came_again)


def _slow(case: Case, rails: Sequence[RailTest], again: Mapping[str, RailTest]) -> Findings:
    speeds = {i: rail.busbw_gb_s for i, rail in enumerate(rails) if not isinstance(rail.busbw_gb_s, Gap)}
    rates = {i: "" if isinstance(rail.rate_gbit_s, Gap) else f"{rail.rate_gbit_s}" for i, rail in enumerate(rails)}
    for i, speed, middle in laggards(speeds, rates, WARN_BELOW):
        second = again.get(_called(rails[i]))
        best = max(speed, 0.0 if second is None else known_or(second.busbw_gb_s, 0.0))
        came_again = second is not None and best < WARN_BELOW * middle
        shown = best if came_again else speed
        severity = Severity.FAIL if shown < FAIL_BELOW * middle else Severity.WARN
        if second is not None and not came_again and severity is Severity.WARN:
            continue
        often = "" if second is None else ", twice" if came_again else f", once; then {best:.1f} GB/s"
        detail = f"carries {shown:.1f} GB/s alone{often}, vs {middle:.1f} GB/s"
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
