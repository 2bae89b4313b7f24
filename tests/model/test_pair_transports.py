"""The path of every pair, against a second reading of the corpus and the formats of NCCL 2.4 to 2.30."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.nccl_log import Way, pair_transports, read_nccl_log, transport_summary
from tests.shared import LOGS

Need = Callable[[str, bool, str], None]
P = "node-1:4411:4420 [0] NCCL INFO "
WARN = "[2026-06-20 10:15:41] node-1:4411:4420 [0] transport/net.cc:12 NCCL WARN "
SECONDS = "[2026-06-20 10:15:41] "

# What 2.4, 2.8, 2.12, 2.18, 2.21, 2.26 and 2.30 print for two ranks, and what carries their data.
FORMATS = (
    ("Ring 00 : 0[1] -> 1[3] via P2P/IPC", Way.P2P),
    ("Ring 00 : 0[3d000] -> 1[3e000] via direct shared memory", Way.SHM),
    ("Ring 00 : 0 -> 1 [send] via NET/Socket/0", Way.SOCKET),
    ("Ring 01 : 1 -> 0 [receive] via NET/IB/0/GDRDMA", Way.IB_GDR),
    ("Channel 00 : 0[1b000] -> 1[1c000] via P2P/IPC/read", Way.P2P),
    ("Channel 00 : 0[1b000] -> 1[1c000] via P2P/direct pointer", Way.P2P),
    ("Channel 00 : 0[1b000] -> 1[1c000] via P2P/indirect/4[1e000]/read", Way.P2P),
    ("Channel 01 : 0[0] -> 1[1] via SHM/direct/direct", Way.SHM),
    ("Channel 01 : 0[0] -> 1[1] via SHM/CE/direct", Way.SHM),
    ("Channel 01 : 0[0] -> 1[1] via SHM/direct", Way.SHM),
    ("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", Way.P2P),
    ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", Way.P2P),
    ("Channel 00/1 : 0[0] -> 1[1] via P2P/CUMEM/read", Way.P2P),
    ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/CE", Way.P2P),
    ("Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL", Way.P2P),
    ("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer/read", Way.P2P),
    ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA", Way.IB_GDR),
    ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA(PCI)", Way.IB_GDR),
    ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(3)/GDRDMA/Shared", Way.IB_GDR),
    ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(3)/GDRDMA(PCI)/Shared", Way.IB_GDR),
    ("Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/Shared", Way.IB),
    ("Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IBext_v8/0/GDRDMA", Way.IB_GDR),
    ("Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0", Way.SOCKET),
    ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0/GDRDMA", Way.NET),
)


@pytest.mark.parametrize(("text", "way"), FORMATS, ids=[text for text, _ in FORMATS])
@pytest.mark.parametrize("before", ["", SECONDS, "12: ", "[1,3]<stdout>:"], ids=["bare", "2.26", "srun", "mpirun"])
def test_the_way_of_a_pair_is_read_from_every_format(text: str, way: Way, before: str) -> None:
    transports = pair_transports(read_nccl_log([before + P + text]))
    assert [(pair.ranks, pair.way, pair.is_mixed) for pair in transports.pairs] == [((0, 1), way, False)]
    assert transports.pairs[0].details == (text.split(" via ")[1],)


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
    assert transport_summary(log) == ("0>1 via P2P/CUMEM", "1>2 via P2P/IPC/read")


def test_what_follows_a_path_is_no_part_of_it() -> None:
    log = read_nccl_log([P + "Channel 00 : 0[1a] -> 1[1b] via P2P/IPC comm 0x7f12 nRanks 02"])
    assert transport_summary(log) == ("0>1 via P2P/IPC",)


@pytest.mark.parametrize(
    "text", ["Coll 00 : 3 [send] via COLLNET/SHARP/0", "CollNet 00/0 : 3 [send] via COLLNET/SHARP/0"]
)
def test_a_rank_that_hands_its_data_to_the_switch_has_no_peer(text: str) -> None:
    other = text.replace(" 3 ", " 11 ").replace("[send]", "[receive]") + "/GDRDMA"
    log = read_nccl_log([P + text, P + other])
    assert transport_summary(log) == ("11 via COLLNET/SHARP/0/GDRDMA", "3 via COLLNET/SHARP/0")
    assert [(pair.ranks, pair.way) for pair in pair_transports(log).pairs] == [((3, 11), Way.COLLNET)]


def test_a_pair_whose_channels_differ_is_as_good_as_its_worst() -> None:
    log = read_nccl_log(
        [
            P + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
            P + "Channel 01/0 : 1[1] -> 0[0] via SHM/direct/direct",
            P + "Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA",
            P + "Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/1",
        ]
    )
    pairs = pair_transports(log).pairs
    assert [(pair.ranks, pair.way, pair.is_mixed) for pair in pairs] == [
        ((0, 1), Way.SHM, True),
        ((1, 2), Way.IB, True),
    ]


def test_nvls_and_algorithms_stand_beside_the_pairs() -> None:
    lines = [
        P + "Connected NVLS tree",
        P + "AllReduce: 33554432 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}",
        P + "AllGather: 33554432 Bytes -> Algo 1 proto 2 time 123.4",
        P + "1024 Bytes -> Algo 0 proto 0 time 8.1",
    ]
    transports = pair_transports(read_nccl_log(lines))
    assert transports.has_nvls_tree
    assert transports.algorithms == ("AllGather RING", "AllReduce NVLS", "TREE")


def test_every_path_of_the_corpus_is_read_as_a_second_reading_does(need: Need) -> None:
    logs = {path.stem: path.read_text("utf-8", "replace") for path in sorted(LOGS.glob("*.log"))}
    need("corpus", bool(logs), "the corpus of labelled logs is not beside the project")
    shown = 0
    for name, text in logs.items():
        expected = {found for line in text.splitlines() if (found := _second_reading(line)) is not None}
        read = {(path.source_rank, path.target_rank, path.detail) for path in read_nccl_log(text.splitlines()).paths}
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
    assert pair_transports(read_nccl_log(lines)) == pair_transports(read_nccl_log(lines[::-1]))


@given(st.lists(st.text(alphabet="Chanel 0123456789:[]->/viaP2NETIBSHMCOLXrecvsnd()", max_size=80), max_size=6))
def test_any_text_has_transports(lines: list[str]) -> None:
    transports = pair_transports(read_nccl_log(lines))
    assert all(pair.ranks[0] <= pair.ranks[1] for pair in transports.pairs)
