from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.judge.run.rail import rail
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Severity
from preflight.model.trial import Outcome, RailTest
from tests.judge.findings import found, only, skips
from tests.node_facts import gpu_case


def rail_test(number: int, gb_s: float = 40.0, outcome: Outcome = Outcome.OK, **overrides: object) -> RailTest:
    values = {"rate_gbit_s": 400.0, "problem": "", "transport": ("NET/IB/0",), **overrides}
    busbw = gb_s if outcome is Outcome.OK else Gap("it carried nothing")
    return RailTest(f"mlx5_{number}", 1, outcome=outcome, busbw_gb_s=busbw, **values)  # type: ignore[arg-type]


def broken(number: int) -> RailTest:
    return rail_test(number, outcome=Outcome.CRASH, problem="ibv_modify_qp failed", transport=())


def test_ports_that_carry_alike_give_nothing() -> None:
    assert found(rail, gpu_case(rails=tuple(rail_test(i, 40 + i) for i in range(8)))) == ()


def test_where_no_port_was_to_be_tried_nothing_is_said() -> None:
    assert found(rail, gpu_case()) == ()


def test_one_broken_port_among_equals_rejects_the_node_and_is_named() -> None:
    finding = only(found(rail, gpu_case(rails=(*(rail_test(i) for i in range(3)), broken(3)))))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.FABRIC)
    assert "mlx5_3:1" in finding.subject
    assert "(3 with the same rate): ibv_modify_qp failed" in finding.problem


def test_a_port_that_fails_beside_one_of_another_rate_may_serve_something_else() -> None:
    ports = (rail_test(0), rail_test(1, rate_gbit_s=25.0, outcome=Outcome.HANG, problem="hung"))
    assert only(found(rail, gpu_case(rails=ports))).severity is Severity.WARN


def test_where_all_fail_the_way_back_into_the_node_may_be_closed() -> None:
    finding = only(found(rail, gpu_case(rails=tuple(map(broken, range(4))))))
    assert finding.severity is Severity.WARN
    assert finding.problem.startswith("none of the RDMA ports")


@pytest.mark.parametrize("again", [None, broken(3), rail_test(3)])
def test_a_port_that_fails_accuses_only_when_it_fails_again(again: RailTest | None) -> None:
    ports = (*(rail_test(i) for i in range(3)), broken(3), *([] if again is None else [replace(again, repetition=1)]))
    finding = only(found(rail, gpu_case(rails=ports)))
    assert (finding.severity, finding.is_unconfirmed) == (Severity.FAIL, again != broken(3))


@pytest.mark.parametrize(
    ("first", "again", "expected"),
    [
        (5.0, 6.0, [(Severity.FAIL, False)]),
        (5.0, 28.0, [(Severity.WARN, False)]),
        (5.0, 40.0, [(Severity.FAIL, True)]),
        (28.0, 40.0, []),
    ],
)
def test_a_slow_port_accuses_only_when_it_is_slow_again(
    first: float, again: float, expected: list[tuple[Severity, bool]]
) -> None:
    ports = (*(rail_test(i) for i in range(4)), rail_test(4, first), rail_test(4, again, repetition=1))
    findings = found(rail, gpu_case(rails=ports))
    assert [(each.severity, each.is_unconfirmed) for each in findings] == expected


@pytest.mark.parametrize(("gb_s", "severity"), [(28.0, Severity.WARN), (15.0, Severity.FAIL)])
def test_a_slow_port_is_judged_by_those_of_its_rate(gb_s: float, severity: Severity) -> None:
    others = [rail_test(9, 1.0, rate_gbit_s=10.0)]
    finding = only(found(rail, gpu_case(rails=(*(rail_test(i) for i in range(4)), rail_test(4, gb_s), *others))))
    assert (finding.severity, "mlx5_4:1" in finding.subject) == (severity, True)


def test_beside_another_job_no_speed_is_judged() -> None:
    ports = tuple(rail_test(i, busbw) for i, busbw in enumerate((40.0, 40.0, 40.0, 3.0)))
    busy = tuple(RailTest(p.hca, 1, 400.0, Outcome.OK, "", p.transport, Gap("GPU 0 was in use")) for p in ports)
    assert found(rail, gpu_case(rails=busy)) == ()


@pytest.mark.parametrize(
    ("rails", "reason"),
    [
        (Gap("the run ended before they were tried"), "ended before"),
        ((rail_test(0), rail_test(1, outcome=Outcome.SKIPPED, problem="3 s were left")), "mlx5_1:1: 3 s were left"),
        ((rail_test(0, transport=("SHM/FILE",)), rail_test(1)), "mlx5_0:1: the data went over SHM/FILE"),
        ((rail_test(0, transport=()), rail_test(1)), "a transport that its log does not name"),
    ],
)
def test_a_port_that_could_not_be_looked_at_is_not_called_healthy(rails: object, reason: str) -> None:
    assert reason in skips(rail, gpu_case(rails=rails))[0].reason
