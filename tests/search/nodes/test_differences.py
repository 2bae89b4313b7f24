"""What differs between nodes, and whether it may."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from preflight.model.facts import EnvVar, Gap, NodeFacts, SoftwareFacts, TorchFacts, known
from preflight.model.hca import NOT_FORCED, Gid, PortState, TrafficClasses
from preflight.model.network_survey import ClockOffset
from preflight.search.nodes.differences import NOT_READ, Must, differences
from tests.node_facts import TORCH, env, netif, node
from tests.topology import port, roce_port


def with_nccl(host: str, nccl: str | Gap) -> NodeFacts:
    made = node(host=host)
    software = known(made.software)
    torch = known(software.torch)
    return replace(made, software=replace(software, torch=replace(torch, nccl=nccl)))


def test_nodes_that_are_alike_have_an_empty_table() -> None:
    assert differences([node(host="a"), node(host="b")], (), "nccl") == ()
    assert differences([node()], (), "nccl") == ()


def test_another_nccl_must_not_be_where_nccl_is_used() -> None:
    nodes = [with_nccl("a", "2.27.5"), with_nccl("b", "2.27.5"), with_nccl("c", "2.21.5")]
    (found,) = differences(nodes, (), "nccl")
    assert (found.what, found.must) == ("NCCL", Must.EQUAL)
    assert found.values == (("2.27.5", ("a", "b")), ("2.21.5", ("c",)))
    (on_gloo,) = differences(nodes, (), "gloo")
    assert on_gloo.must is Must.BETTER


def test_what_could_not_be_read_accuses_nobody() -> None:
    (found,) = differences([with_nccl("a", "2.27.5"), with_nccl("b", Gap("denied"))], (), "nccl")
    assert (found.must, found.values[1][0]) == (Must.NOT, NOT_READ)


def test_an_mtu_is_compared_by_interface_and_names_may_differ() -> None:
    nodes = [node(host="a", netifs=(netif(mtu=9000),)), node(host="b", netifs=(netif(mtu=1500),))]
    assert [(each.what, each.must) for each in differences(nodes, (), "gloo")] == [("MTU of eth0", Must.BETTER)]
    nodes = [node(host="a", netifs=(netif("ens3"),)), node(host="b", netifs=(netif("eth0"),))]
    assert [(each.what, each.must) for each in differences(nodes, (), "gloo")] == [("interfaces", Must.NOT)]


def test_settings_must_agree_but_those_of_interfaces_may_differ() -> None:
    nodes = [
        node(host="a", environment=(EnvVar("NCCL_ALGO", "Ring"), EnvVar("NCCL_SOCKET_IFNAME", "ens3"))),
        node(host="b", environment=(EnvVar("NCCL_SOCKET_IFNAME", "eth0"),)),
    ]
    found = {each.what: each for each in differences(nodes, (), "nccl")}
    assert found["NCCL_ALGO"].must is Must.BETTER
    assert ("not set", ("b",)) in found["NCCL_ALGO"].values
    assert found["NCCL_SOCKET_IFNAME"].must is Must.NOT


def test_a_clock_counts_only_as_far_as_it_was_measured() -> None:
    nodes = [node(host="a"), node(host="b")]
    assert differences(nodes, (ClockOffset(1, "b", 3.0, 2.5),), "gloo") == ()
    (found,) = differences(nodes, (ClockOffset(1, "b", -90.0, 0.01),), "gloo")
    assert found.values[1] == ("-90.0 s", ("b",))


VERSIONS = st.text(max_size=5) | st.just(Gap("denied"))


@given(st.lists(VERSIONS, min_size=2, max_size=5))
def test_only_what_differs_is_in_the_table_with_every_node_once(versions: list[str | Gap]) -> None:
    nodes = [
        node(host=str(i), software=SoftwareFacts("3.11.7", "0.1", TorchFacts("2.13.0", Gap("CPU"), each, "/torch")))
        for i, each in enumerate(versions)
    ]
    found = differences(nodes, (), "nccl")
    read = {NOT_READ if isinstance(each, Gap) else each for each in versions}
    assert bool(found) == (len(read) > 1 or False)
    for each in found:
        hosts = [host for _, named in each.values for host in named]
        assert sorted(hosts) == sorted(str(i) for i in range(len(versions)))


def test_traffic_classes_of_roce_should_be_alike_and_infiniband_has_none() -> None:
    plain = TrafficClasses((), (), (), NOT_FORCED)
    nodes = [
        node(host=host, hca_ports=(roce_port(traffic_classes=(classes,)), port("mlx5_1")))
        for host, classes in (("a", plain), ("b", replace(plain, pfc_priorities=(3,))), ("c", plain))
    ]
    (found,) = (each for each in differences(nodes, (), "nccl") if "traffic classes" in each.what)
    assert found.must is Must.BETTER and [hosts for _, hosts in found.values] == [("a", "c"), ("b",)]
    without = [node(host=host, hca_ports=(port(traffic_classes=()),)) for host in "ab"]
    assert not any("traffic classes" in each.what for each in differences(without, (), "nccl"))


def test_ports_that_are_down_and_an_ecn_that_one_node_does_not_show_are_no_difference() -> None:
    plain = TrafficClasses((3,), (), (3,), NOT_FORCED)
    unread, other = replace(plain, ecn_priorities=Gap("no such file")), replace(plain, pfc_priorities=())
    down = roce_port("mlx5_9", state=PortState.DOWN, traffic_classes=(other,))
    nodes = [node(host="a", hca_ports=(roce_port(traffic_classes=(plain,)),))]
    nodes += [node(host="b", hca_ports=(roce_port(traffic_classes=(unread,)), down))]
    assert not any("traffic classes" in each.what for each in differences(nodes, (), "nccl"))


def test_networks_differ_for_nccl_only() -> None:
    plain = TrafficClasses((3,), (), (3,), NOT_FORCED)
    nodes = [
        node(host=host, hca_ports=(roce_port(traffic_classes=(replace(plain, pfc_priorities=pfc),)),))
        for host, pfc in (("a", (3,)), ("b", ()))
    ]
    found = {backend: differences(nodes, (), backend) for backend in ("nccl", "gloo")}
    assert {backend: [each.must for each in of] for backend, of in found.items() if of} == {
        "nccl": [Must.BETTER], "gloo": [Must.NOT],
    }  # fmt: skip


def with_gids(host: str, *kinds: tuple[int, str, str], **overrides: Any) -> NodeFacts:
    """Return a node with a RoCE port that has these GIDs: index, type, and "IPv4" or "IPv6"."""
    heads = {"IPv4": "0000:0000:0000:0000:0000:ffff:", "IPv6": "fe80:0000:0000:0000:0000:0000:"}
    gids = tuple(Gid(index, f"{heads[family]}0a00:0001", kind, "eth0") for index, kind, family in kinds)
    return node(host=host, hca_ports=(roce_port(gids=gids), port("mlx5_1")), **overrides)


V1, V2 = ((0, "IB/RoCE v1", "IPv6"), (1, "RoCE v2", "IPv6"))


def test_gid_tables_should_be_alike_only_if_an_index_is_set() -> None:
    usual, other = (V1, V2, (3, "RoCE v2", "IPv4")), (V1, V2, (2, "IB/RoCE v1", "IPv4"), (5, "RoCE v2", "IPv4"))
    nodes = [with_gids("a", *usual), with_gids("b", *usual), with_gids("c", *other)]
    (found,) = differences(nodes, (), "nccl")
    assert (found.must, found.values) == (Must.NOT, (("3", ("a", "b")), ("5", ("c",))))
    set_to = env(NCCL_IB_GID_INDEX="3")
    nodes = [with_gids(host, *gids, environment=set_to) for host, gids in (("a", usual), ("b", usual), ("c", other))]
    (found,) = differences(nodes, (), "nccl")
    assert (found.must, found.values) == (Must.BETTER, (("RoCE v2 IPv4", ("a", "b")), ("empty", ("c",))))
    assert differences(nodes[:2], (), "nccl") == ()
    some = env(NCCL_IB_GID_INDEX="3", NCCL_IB_HCA="mlx5_1")
    nodes = [with_gids(host, *gids, environment=some) for host, gids in (("a", usual), ("c", other))]
    assert [found.must for found in differences(nodes, (), "nccl")] == [Must.NOT]
    absurd = env(NCCL_IB_GID_INDEX="3" * 5000)
    nodes = [with_gids(host, *usual, environment=absurd) for host in "ab"]
    assert differences(nodes, (), "nccl") == ()


def test_a_network_plugin_that_only_some_nodes_have_is_told() -> None:
    def with_plugins(host: str, plugins: tuple[str, ...] | Gap) -> NodeFacts:
        return node(host=host, software=SoftwareFacts("3.11.7", "0.1", TORCH, plugins))

    path = "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so"
    (found,) = differences([with_plugins("a", (path,)), with_plugins("b", ()), with_plugins("c", ())], (), "nccl")
    assert (found.must, found.values) == (Must.BETTER, (("none", ("b", "c")), ("libnccl-net.so", ("a",))))
    elsewhere = with_plugins("b", ("/tmp/image/lib/libnccl-net.so",))
    assert differences([with_plugins("a", (path,)), elsewhere], (), "nccl") == ()
    (found,) = differences([with_plugins("a", (path,)), with_plugins("b", Gap("not recorded"))], (), "nccl")
    assert found.must is Must.NOT
