"""The real NCCL over simulated adapters: it finds them, its data are right, faults end with the words of the wild."""

from __future__ import annotations

import pytest

from tests.simcuda import adapters
from tests.simcuda.machine import Machine, capture, named
from tests.simcuda.places import NCCL
from tests.simcuda.run import Wiring, transports
from tests.simcuda.topology import topology

pytestmark = [pytest.mark.simcuda, pytest.mark.heavy(2)]
GIVEN_UP = "status=12 opcode=0 len=0 vendor err 129"
QUICKLY = {"SIMCUDA_IB_HASTE": "64"}  # the 34 s after which NCCL's packet is given up are half a second
JOBS = ("all_reduce:1000003", "all_gather:77777", "reduce_scatter:77777", "broadcast:100001", "all_to_all:33333")
NOT_OF_FAULTS = "rma_socket requires GDRCopy"  # 2.32 warns of it at every healthy start


def over_adapters(machine: Machine | str, env: dict[str, str] | None = None, *gpus: int, limit_s: float = 60) -> Wiring:
    """Sum on two nodes, told apart by NCCL_HOSTID, and check the data."""
    env = QUICKLY | (env or {})
    jobs = ("all_reduce",)
    return transports(machine, env=env, gpus=gpus or (0, 1), nodes=2, data=True, collectives=jobs, limit_s=limit_s)


@pytest.mark.parametrize(
    ("machine", "path"),
    [
        ("pcie4-ib", "NET/IB/0"),
        ("pcie4-roce", "NET/IB/0"),
        ("pcie4-gdr", "NET/IB/0/GDRDMA"),
        ("pcie4-roce-gdr", "NET/IB/0/GDRDMA"),
    ],
)
@pytest.mark.usefixtures("simcuda")
def test_every_collective_is_right_between_two_nodes(machine: str, path: str) -> None:
    wiring = transports(machine, gpus=(0, 1), nodes=2, data=True, collectives=JOBS, limit_s=60)
    assert wiring.right and not wiring.warnings and not wiring.refused, wiring.log[-4000:]
    assert {kind.removesuffix("/Shared") for kind in wiring.kinds} == {path}
    layer = "RoCE" if "roce" in machine else "IB"
    assert f"NET/IB : Using [0]mlx5_0:1/{layer} [1]mlx5_1:1/{layer}" in wiring.log


@pytest.mark.parametrize("version", NCCL)
@pytest.mark.usefixtures("simcuda")
def test_every_version_connects(version: str) -> None:
    for machine in ("pcie4-ib", "pcie4-roce"):
        wiring = transports(machine, version, gpus=(0, 1), nodes=2, limit_s=60)
        assert wiring.started and set(wiring.kinds) == {"NET/IB/0"}, wiring.log[-4000:]
        assert not [text for text in wiring.warnings if NOT_OF_FAULTS not in text]


@pytest.mark.parametrize("version", ["2.21.5", "2.32.3"])
@pytest.mark.usefixtures("simcuda")
def test_what_is_refused_is_said_by_every_version(version: str) -> None:
    env = {"NCCL_IB_GID_INDEX": "7"}
    wiring = transports("pcie4-roce", version, env, gpus=(0, 1), nodes=2, limit_s=60)
    assert any("ibv_modify_qp failed with" in text and "61" in text for text in wiring.warnings), wiring.log[-4000:]


@pytest.mark.parametrize(
    "env",
    [
        {"NCCL_IB_QPS_PER_CONNECTION": "4", "NCCL_IB_SPLIT_DATA_ON_QPS": "1"},
        {"NCCL_IB_USE_INLINE": "1", "NCCL_IB_AR_THRESHOLD": "0"},
    ],
    ids=["pairs", "inline"],
)
@pytest.mark.usefixtures("simcuda")
def test_other_ways_to_post_are_right(env: dict[str, str]) -> None:
    assert over_adapters("pcie4-ib", env).right


@pytest.mark.parametrize("cure", [{"NCCL_IB_HCA": "=mlx5_1:1"}, {"NCCL_IB_DISABLE": "1"}], ids=["port", "sockets"])
@pytest.mark.usefixtures("simcuda")
def test_a_port_that_loses_data_is_cured_without_it(cure: dict[str, str]) -> None:
    assert over_adapters("pcie4-ib", cure | {"SIMCUDA_IB_LOSES": "mlx5_0"}).right


GIVES_UP = {
    "loses": ("pcie4-ib", {"SIMCUDA_IB_LOSES": "mlx5_0"}),
    "loses-later": ("pcie4-ib", {"SIMCUDA_IB_LOSES": "mlx5_0:20"}),
    "loses-one-way": ("pcie4-ib", {"SIMCUDA_IB_LOSES_SENT": "mlx5_0@1"}),
    "partition": ("pcie4-ib", {"SIMCUDA_IB_PKEY": "mlx5_0@1:0x8201"}),
    "dies": ("pcie4-roce", {"SIMCUDA_IB_DIES": "mlx5_0@1:20"}),
}


@pytest.mark.parametrize("fault", GIVES_UP)
@pytest.mark.usefixtures("simcuda")
def test_what_is_not_heard_is_given_up_and_nccl_keeps_it_to_itself(fault: str) -> None:
    machine, env = GIVES_UP[fault]
    lost = over_adapters(machine, env, limit_s=6)
    assert lost.timed_out and any(GIVEN_UP in text and "hca mlx5_0" in text for text in lost.warnings), lost.log[-3000:]
    died = "NET/IB : mlx5_0:1 Got async error event: port error"
    assert (died in lost.warnings) == (fault == "dies")
    assert (machine == "pcie4-roce") == any("localGid ::ffff:192.168.10." in text for text in lost.warnings)


REFUSED = {
    "gid-empty": ("pcie4-roce", {"NCCL_IB_GID_INDEX": "7"}, "ibv_modify_qp failed with 61 No data available"),
    "gid-outside": ("pcie4-roce", {"NCCL_IB_GID_INDEX": "40"}, "ibv_query_gid failed"),
    "pkey-index": ("pcie4-ib", {"NCCL_IB_PKEY": "3"}, "ibv_modify_qp failed with 22 Invalid argument"),
    "memlock": ("pcie4-ib", {"SIMCUDA_IB_MEMLOCK": "all:64"}, "ibv_reg_mr failed with error Cannot allocate memory"),
    "gdr": ("pcie4-gdr", {"SIMCUDA_IB_GDR_REFUSED": "all"}, "ibv_reg_mr_iova2 failed with error Bad address"),
}


@pytest.mark.parametrize("fault", REFUSED)
@pytest.mark.usefixtures("simcuda")
def test_what_the_library_refuses_fails_the_collective(fault: str) -> None:
    machine, env, words = REFUSED[fault]
    refused = over_adapters(machine, env)
    assert any(refused.results["all_reduce"]) and any(words in text for text in refused.warnings), refused.log[-3000:]


@pytest.mark.usefixtures("simcuda")
def test_a_port_that_flaps_is_survived() -> None:
    flapped = over_adapters("pcie4-ib", {"SIMCUDA_IB_DIES": "mlx5_0@1:20/300", "SIMCUDA_IB_HASTE": "16"})
    assert flapped.right and "NET/IB : mlx5_0:1 Got async error event: port active" in flapped.warnings


@pytest.mark.parametrize(
    ("machine", "env"),
    [("pcie4-ib", {"SIMCUDA_IB_CHANGES": "mlx5_0@1"}), ("pcie4-gdr", {"SIMCUDA_IB_GDR_CHANGES": "mlx5_0"})],
    ids=["any", "gdr"],
)
@pytest.mark.usefixtures("simcuda")
def test_data_that_change_on_the_way_are_wrong(machine: str, env: dict[str, str]) -> None:
    changed = over_adapters(machine, env)
    assert changed.wrong is not None and changed.wrong["all_reduce"] > 0
    assert machine == "pcie4-ib" or over_adapters(machine, env | {"NCCL_NET_GDR_LEVEL": "LOC"}).right


@pytest.mark.parametrize(
    "env", [{"SIMCUDA_IB_DOWN": "all"}, {"SIMCUDA_IB_OPEN_FAILS": "all"}, {"NCCL_IB_HCA": "=mlx5_9"}], ids=str
)
@pytest.mark.usefixtures("simcuda")
def test_without_a_port_it_is_sockets(env: dict[str, str]) -> None:
    wiring = over_adapters("pcie4-ib", env)
    assert wiring.right and set(wiring.kinds) == {"NET/Socket/0"}


@pytest.mark.usefixtures("simcuda")
def test_rails_of_their_own_need_the_node_to_keep_off_them() -> None:
    # NCCL finds the cards faster than the way between two sockets, and crosses from rail to rail inside the node.
    rails = {"SIMCUDA_IB_NETWORK": "mlx5_1:2", "NCCL_CROSS_NIC": "0"}
    assert over_adapters("pcie4-ib", rails, 0, 2, 0, 2, limit_s=6).timed_out
    assert over_adapters("pcie4-ib", rails | {"NCCL_NET_DISABLE_INTRA": "1"}, 0, 2, 0, 2).right


@pytest.mark.usefixtures("simcuda")
def test_a_slow_port_takes_longer() -> None:
    slow = over_adapters("pcie4-ib", {"SIMCUDA_IB_MB_S": "mlx5_0:1"})
    assert slow.right and slow.seconds > over_adapters("pcie4-ib", {"SIMCUDA_IB_MB_S": "mlx5_1:1"}).seconds


def test_a_node_of_its_own_has_other_addresses_and_the_same_adapters() -> None:
    for machine in (named("pcie4-ib"), named("pcie4-roce"), capture("h100x8")):
        ours, theirs = (adapters.on_node(machine.node, number) for number in (0, 1))
        places = [
            {(port["hca"], gid["gid"]) for port in each["hca_ports"] for gid in port["gids"]} for each in (ours, theirs)
        ]
        assert len(places[0]) == len(places[1]) and not places[0] & places[1]
        addresses = [gid for place in places for _, gid in place]
        assert len(set(addresses)) == len(addresses), "an address that two ports have sends data to the wrong one"
        lids = [port["lid"] for each in (ours, theirs) for port in each["hca_ports"] if port["lid"]]
        assert len(set(lids)) == len(lids)


def test_a_captures_adapters_are_in_the_topology() -> None:
    machine = capture("h100x8", ADAPTERS="1")
    assert 'name="mlx5_0"' in topology(machine.node, machine.has_adapters)
    assert 'name="mlx5_0"' not in topology(machine.node)
