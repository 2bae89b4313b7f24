"""NCCL's INFO lines of 2.4 to 2.30, as facts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.nccl_log import Algorithm, Card, read_nccl_log
from preflight.model.transport import Transport

P = "node-1:4411:4420 [0] NCCL INFO "


@pytest.mark.parametrize(
    ("line", "transport", "detail", "gpu_direct"),
    [
        (P + "Ring 00 : 0[1] -> 1[3] via P2P/IPC", Transport.P2P, "P2P/IPC", False),
        (P + "Ring 00 : 0[3d000] -> 1[3e000] via direct shared memory", Transport.SHM, "direct shared memory", False),
        (P + "Ring 00 : 0 -> 1 [send] via NET/Socket/0", Transport.NET, "NET/Socket/0", False),
        (P + "Channel 00 : 0[1b000] -> 1[1c000] via P2P/IPC/read", Transport.P2P, "P2P/IPC/read", False),
        (P + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", Transport.P2P, "P2P/CUMEM/read", False),
        (P + "Channel 03/0 : 0[0] -> 1[1] via P2P/direct pointer", Transport.P2P, "P2P/direct pointer", False),
        (P + "Channel 01 : 0[0] -> 1[1] via SHM/direct/direct", Transport.SHM, "SHM/direct/direct", False),
        (P + "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA", Transport.NET, "NET/IB/0/GDRDMA", True),
        (
            P + "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(3)/GDRDMA/Shared",
            Transport.NET,
            "NET/IB/0(3)/GDRDMA/Shared",
            True,
        ),
    ],
)
def test_the_path_of_a_pair_is_read(line: str, transport: Transport, detail: str, gpu_direct: bool) -> None:
    (path,) = read_nccl_log([line]).paths
    assert path.ranks == (0, 1)
    assert (path.transport, path.name, "GDRDMA" in path.name) == (transport, detail, gpu_direct)


@pytest.mark.parametrize(
    "text",
    [
        "Bootstrap : Using eth0:10.0.0.1<0>",
        "Bootstrap: Using eth0:10.0.0.1<0>",
        "Bootstrap : Using [0]eth0:10.0.0.1<0>",
    ],
)
def test_the_bootstrap_interface_is_read(text: str) -> None:
    assert read_nccl_log([P + text]).bootstrap == ("eth0",)


def test_cards_are_read() -> None:
    log = read_nccl_log([P + "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"])
    assert log.cards == (Card("mlx5_0", 1, "IB"), Card("mlx5_1", 1, "RoCE"))


def test_networks_and_sockets_are_read() -> None:
    log = read_nccl_log(
        [
            "NCCL version 2.27.7+cuda13.0",
            P + "NET/Socket : Using [0]bond0:10.0.0.1<0> [1]eth1:10.0.1.1<0>",
            P + "Using network AWS Libfabric",
            P + "NET/IB : No device found.",
            P + "P2P is disabled between connected GPUs 1 and 0. You can repress this message",
        ]
    )
    assert log.socket_interfaces == ("bond0", "eth1")
    assert log.networks == ("AWS Libfabric",)


def test_the_tree_of_nvls_is_read() -> None:
    log = read_nccl_log(
        [
            P + "NVLS multicast support is not available on dev 1",
            P + "NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)",
            P + "Connected NVLS tree",
            P + "ncclCommInitRank comm 0x83fa rank 12 nranks 16 cudaDev 4 nvmlDev 4 busId 9a000 commId 0x40 - "
            "Init COMPLETE",
        ]
    )
    assert log.has_nvls


def test_algorithms_are_read_by_name_and_by_the_numbers_of_older_versions() -> None:
    log = read_nccl_log(
        [
            P + "AllReduce: 33554432 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..31}",
            P + "33554432 Bytes -> Algo 0 proto 2 time 123.4",
        ]
    )
    assert log.algorithms == (
        Algorithm("AllReduce", 33554432, "RING", "SIMPLE"),
        Algorithm("", 33554432, "TREE", "SIMPLE"),
    )


def test_two_logs_that_differ_in_order_and_channels_only_have_the_same_carriers() -> None:
    lines = [
        P + f"Channel {channel:02d}/0 : {a}[{a}] -> {b}[{b}] via P2P/CUMEM"
        for channel in range(4)
        for a, b in ((0, 1), (1, 0))
    ]
    assert read_nccl_log(lines).carriers() == read_nccl_log(reversed(lines[:2])).carriers()
    assert (
        read_nccl_log(lines).carriers()
        != read_nccl_log([line.replace("P2P/CUMEM", "SHM/direct") for line in lines]).carriers()
    )


@given(st.lists(st.text(max_size=120), max_size=20))
def test_any_text_is_read(lines: list[str]) -> None:
    read_nccl_log(lines)


@pytest.mark.parametrize(
    ("text", "carriers"),
    [
        ("NET/Plugin: Could not find: missing libnccl-net-missing.so. Using internal net plugin", ["NET missing"]),
        ("TUNER/Plugin: Could not find: /nowhere/libtuner.so", ["TUNER /nowhere/libtuner.so"]),
        ("NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.", []),
        ("NET/Plugin: Most recent plugin load returned 2 : x: cannot open shared object file: No such file or "
         "directory. All attempts to load 'x libnccl-net-x.so' also failed.", ["NET x"]),
    ],
)  # fmt: skip
def test_a_plugin_that_was_asked_for_and_not_loaded_is_read(text: str, carriers: list[str]) -> None:
    assert [each.name for each in read_nccl_log([P + text]).carriers()] == carriers
