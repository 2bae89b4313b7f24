"""The path of every pair, against a second reading of the corpus and the formats of NCCL 2.4 to 2.30."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.nccl_log import read_nccl_log
from preflight.model.transport import CarrierKind, Transport, carriers_from, path_names, texts_of
from tests.shared import LOGS

Need = Callable[[str, bool, str], None]
P = "node-1:4411:4420 [0] NCCL INFO "
WARN = "[2026-06-20 10:15:41] node-1:4411:4420 [0] transport/net.cc:12 NCCL WARN "
SECONDS = "[2026-06-20 10:15:41] "

# What 2.4, 2.8, 2.12, 2.18, 2.21, 2.26 and 2.30 print for two ranks, and what carries their data.
FORMATS = (
    ("Ring 00 : 0[1] -> 1[3] via P2P/IPC", Transport.P2P),
    ("Ring 00 : 0[3d000] -> 1[3e000] via direct shared memory", Transport.SHM),
    ("Ring 00 : 0 -> 1 [send] via NET/Socket/0", Transport.NET),
    ("Ring 01 : 1 -> 0 [receive] via NET/IB/0/GDRDMA", Transport.NET),
    ("Channel 00 : 0[1b000] -> 1[1c000] via P2P/IPC/read", Transport.P2P),
    ("Channel 00 : 0[1b000] -> 1[1c000] via P2P/direct pointer", Transport.P2P),
    ("Channel 00 : 0[1b000] -> 1[1c000] via P2P/indirect/4[1e000]/read", Transport.P2P),
    ("Channel 01 : 0[0] -> 1[1] via SHM/direct/direct", Transport.SHM),
    ("Channel 01 : 0[0] -> 1[1] via SHM/CE/direct", Transport.SHM),
    ("Channel 01 : 0[0] -> 1[1] via SHM/direct", Transport.SHM),
    ("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", Transport.P2P),
    ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", Transport.P2P),
    ("Channel 00/1 : 0[0] -> 1[1] via P2P/CUMEM/read", Transport.P2P),
    ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/CE", Transport.P2P),
    ("Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL", Transport.P2P),
    ("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer/read", Transport.P2P),
    ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA", Transport.NET),
    ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA(PCI)", Transport.NET),
    ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(3)/GDRDMA/Shared", Transport.NET),
    ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(3)/GDRDMA(PCI)/Shared", Transport.NET),
    ("Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/Shared", Transport.NET),
    ("Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IBext_v8/0/GDRDMA", Transport.NET),
    ("Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0", Transport.NET),
    ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0/GDRDMA", Transport.NET),
)


@pytest.mark.parametrize(("text", "way"), FORMATS, ids=[text for text, _ in FORMATS])
@pytest.mark.parametrize("before", ["", SECONDS, "12: ", "[1,3]<stdout>:"], ids=["bare", "2.26", "srun", "mpirun"])
def test_the_way_of_a_pair_is_read_from_every_format(text: str, way: Transport, before: str) -> None:
    (carrier,) = read_nccl_log([before + P + text]).carriers()
    ranks = (1, 0) if " 1 -> 0 " in text else (0, 1)
    assert (carrier.ranks, carrier.transport, carrier.is_pair) == (ranks, way, True)
    assert path_names([carrier]) == (text.split(" via ")[1],)


def test_lines_glued_together_are_all_read_and_nothing_of_the_next_line_sticks_to_a_path() -> None:
    glued = (
        P
        + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
        + P
        + "Channel 00/0 : 1[1] -> 2[2] via P2P/IPC/read"
        + WARN
        + "x"
    )
    log = read_nccl_log([glued])
    assert texts_of(log.carriers()) == ("0>1 via P2P/CUMEM", "1>2 via P2P/IPC/read")


def test_what_follows_a_path_is_no_part_of_it() -> None:
    log = read_nccl_log([P + "Channel 00 : 0[1a] -> 1[1b] via P2P/IPC comm 0x7f12 nRanks 02"])
    assert texts_of(log.carriers()) == ("0>1 via P2P/IPC",)


@pytest.mark.parametrize(
    "text", ["Coll 00 : 3 [send] via COLLNET/SHARP/0", "CollNet 00/0 : 3 [send] via COLLNET/SHARP/0"]
)
def test_a_rank_that_hands_its_data_to_the_switch_has_no_peer(text: str) -> None:
    other = text.replace(" 3 ", " 11 ").replace("[send]", "[receive]") + "/GDRDMA"
    log = read_nccl_log([P + text, P + other])
    assert texts_of(log.carriers()) == ("11 via COLLNET/SHARP/0/GDRDMA", "3 via COLLNET/SHARP/0")
    assert [(each.ranks, each.transport, each.is_pair) for each in log.carriers()] == [
        ((11,), Transport.COLLNET, False),
        ((3,), Transport.COLLNET, False),
    ]


def test_each_way_of_a_pair_whose_channels_differ_is_kept() -> None:
    log = read_nccl_log(
        [
            P + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
            P + "Channel 01/0 : 1[1] -> 0[0] via SHM/direct/direct",
            P + "Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA",
            P + "Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/1",
        ]
    )
    assert [(each.ranks, each.transport) for each in log.carriers()] == [
        ((0, 1), Transport.P2P),
        ((1, 0), Transport.SHM),
        ((1, 2), Transport.NET),
        ((1, 2), Transport.NET),
    ]


def test_nvls_and_algorithms_stand_beside_the_pairs() -> None:
    lines = [
        P + "Connected NVLS tree",
        P + "AllReduce: 33554432 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}",
        P + "AllGather: 33554432 Bytes -> Algo 1 proto 2 time 123.4",
        P + "1024 Bytes -> Algo 0 proto 0 time 8.1",
    ]
    log = read_nccl_log(lines)
    assert log.has_nvls
    assert texts_of((*log.carriers(), *log.algorithm_carriers())) == (
        "NVLS",
        "algorithm AllGather 32 MiB RING/SIMPLE",
        "algorithm AllReduce 32 MiB NVLS/SIMPLE",
        "algorithm collective 1 KiB TREE/LL",
    )


def test_every_path_of_the_corpus_is_read_as_a_second_reading_does(need: Need) -> None:
    logs = {path.stem: path.read_text("utf-8", "replace") for path in sorted(LOGS.glob("*.log"))}
    need("corpus", bool(logs), "the corpus of labelled logs is not beside the project")
    shown = 0
    for name, text in logs.items():
        expected = {found for line in text.splitlines() if (found := _second_reading(line)) is not None}
        read = {(*path.ranks, path.name) for path in read_nccl_log(text.splitlines()).paths}
        assert read == expected, name
        shown += bool(expected)
    assert shown >= 10  # logs that show transports


def _second_reading(line: str) -> tuple[int, int, str] | None:
    """Read a line by cutting it at its words: no regular expression in common with the reader."""
    if " -> " not in line or " via " not in line or "NCCL INFO" not in line:
        return None
    head, _, path = line.partition(" via ")
    if not path.startswith(("P2P/", "SHM/", "NET/", "direct shared")):
        return None
    left, _, right = head.rpartition(" -> ")
    source = left.split(" ")[-1].split("[")[0]
    target = right.split(" ")[0].split("[")[0]
    return int(source), int(target), path.rstrip()


@given(
    st.lists(st.sampled_from([P + text for text, _ in FORMATS] + ["", "\0", "via P2P/", "Channel 00 : 1"]), max_size=8)
)
def test_the_order_of_lines_does_not_matter(lines: list[str]) -> None:
    assert read_nccl_log(lines).carriers() == read_nccl_log(lines[::-1]).carriers()


@given(st.lists(st.text(alphabet="Chanel 0123456789:[]->/viaP2NETIBSHMCOLXrecvsnd()", max_size=80), max_size=6))
def test_any_text_has_transports(lines: list[str]) -> None:
    carriers = read_nccl_log(lines).carriers()
    assert carriers_from(texts_of(carriers)) == carriers


REPORTED = ("0>1 via P2P/CUMEM", "3 via COLLNET/SHARP/0", "NVLS", "TCP/eth0", "algorithm AllReduce 32 MiB RING/SIMPLE",
            "hca mlx5_0:1", "netif eth0", "network AWS Libfabric", "what a later release writes")  # fmt: skip


def test_the_text_of_the_report_is_read_as_what_was_written() -> None:
    carriers = carriers_from(REPORTED)
    assert texts_of(carriers) == REPORTED
    assert [each.kind for each in carriers] == [
        CarrierKind.PATH, CarrierKind.PATH, CarrierKind.NVLS, CarrierKind.TCP, CarrierKind.ALGORITHM, CarrierKind.HCA,
        CarrierKind.NETIF, CarrierKind.NETWORK, CarrierKind.OTHER,
    ]  # fmt: skip
