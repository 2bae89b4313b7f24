"""Which interfaces and RDMA ports data between the nodes can be held to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from preflight.check.request import Request
from preflight.check.survey import survey_capture
from preflight.model.codec import decode, encode
from preflight.model.hca import HcaPort, PortState
from preflight.model.isolation import BadPath, RouteKind
from preflight.model.joint import JointPlan, SoloResult
from preflight.model.network_survey import PathEnd, PathResult
from preflight.search.nodes.joint_plan import plan_jointly
from preflight.search.nodes.route_isolation import MOST_BROKEN, routes_between
from tests.node_facts import node
from tests.search.ways import between, nodes

H100 = Path(__file__).parents[2] / "machines" / "h100x8.json"


def solo(host: str, dialect: str = "gloo", ports: tuple[HcaPort, ...] = ()) -> SoloResult:
    return SoloResult(
        host=host, ranks=2, backend=dialect, dialect=dialect, is_cpu_path=True, problem="", trials=(), findings=(),
        skipped_checks=(), env=(), inherits_tuning=False, netif="eth0", free_bytes_per_rank=1 << 30, gpus=(),
        facts=node(hca_ports=ports),
    )  # fmt: skip


def solo_results(count: int, dialect: str = "gloo", ports: tuple[HcaPort, ...] = ()) -> dict[int, SoloResult]:
    return {k: solo(f"n{k}", dialect, ports) for k in range(count)}


def h100_ports(count: int) -> tuple[HcaPort, ...]:
    found = survey_capture(H100.read_text()).node.hca_ports
    assert isinstance(found, tuple)
    return found[:count]


def works(_: PathResult) -> PathEnd:
    return PathEnd.OK


def test_each_set_of_interfaces_is_a_way_and_what_was_chosen_comes_first() -> None:
    learnt = replace(between(nodes(3, "eth0", "eth1"), works), chosen="subnet 10.1.0.0/16")
    first, second = routes_between(solo_results(3), learnt)
    assert (first.kind, dict(first.ends)) == (RouteKind.NETIF, {0: "eth1", 1: "eth1", 2: "eth1"})
    assert dict(second.ends) == {0: "eth0", 1: "eth0", 2: "eth0"}
    assert first.broken == ()


def test_a_way_tells_who_had_not_reached_whom_through_it() -> None:
    def ends(result: PathResult) -> PathEnd:
        return PathEnd.DROPPED if result.netif == "eth0" and 2 in (result.from_node, result.to_node) else PathEnd.OK

    routes = {
        dict(route.ends)[0]: route for route in routes_between(solo_results(3), between(nodes(3, "eth0", "eth1"), ends))
    }
    assert set(routes["eth0"].broken) == {BadPath(0, 2), BadPath(1, 2)}
    assert routes["eth1"].broken == ()


def test_what_was_not_tried_to_the_end_is_not_broken() -> None:
    learnt = between(nodes(3, "eth0", "eth1"), lambda _: PathEnd.UNTRIED)
    assert all(route.broken == () for route in routes_between(solo_results(3), learnt))


def test_a_way_that_reaches_nobody_holds_no_more_pairs_than_show_it() -> None:
    learnt = between(nodes(200, "docker0", "eth0"), lambda r: PathEnd.ITSELF if r.netif == "docker0" else PathEnd.OK)
    route = next(route for route in routes_between(solo_results(200), learnt) if dict(route.ends)[0] == "docker0")
    assert len(route.broken) == MOST_BROKEN


def test_usable_ports_are_ways_where_nccl_speaks_and_a_rail_and_an_interface_come_first() -> None:
    learnt = between(nodes(3, "eth0", "eth1"), works)
    found = routes_between(solo_results(3, "nccl", h100_ports(3)), learnt)
    assert [route.ends[0][1] for route in found] == ["mlx5_0:1", "eth0", "mlx5_1:1", "mlx5_2:1", "eth1"]
    assert [route.kind for route in routes_between(solo_results(3, "gloo", h100_ports(3)), learnt)] == [
        RouteKind.NETIF
    ] * 2


def test_a_port_that_is_down_on_a_node_is_a_way_of_the_others() -> None:
    ports = h100_ports(2)
    listed = solo_results(4, "nccl", ports)
    listed[1] = solo("n1", "nccl", (replace(ports[0], state=PortState.DOWN), ports[1]))
    first, second = routes_between(listed, None)
    assert dict(first.ends) == {0: "mlx5_0:1", 2: "mlx5_0:1", 3: "mlx5_0:1"}
    assert len(second.ends) == 4


def test_two_nodes_have_no_use_for_ways() -> None:
    assert routes_between(solo_results(2), between(nodes(2, "eth0", "eth1"), works)) == ()


def test_only_node_0_is_told_and_what_it_is_told_crosses_as_json() -> None:
    effort = Request()
    planned = plan_jointly(solo_results(3), "x", 60, effort, between(nodes(3, "eth0", "eth1"), works))
    assert [len(planned[rank].trials.routes) for rank in range(3)] == [2, 0, 0]
    assert decode(JointPlan, encode(planned[0])) == planned[0]
