"""What the third review found of InfiniBand's errors in logs (rdma.md 5, 7, 8) is answered with what the line says."""

from __future__ import annotations

import pytest

from tests.explain.logs import explain_bytes, watchdog
from tests.explain.test_third_review import page, said

NCCL = "node-7:31:38 [0] "
QP = (
    "misc/ibvwrap.cc:295 NCCL WARN Call to ibv_modify_qp failed with {}, on dev mlx5_1:1, curr state {}, "
    "next state {}, local GID index {}, local GID {}, remote GID {}"
)
END = "node-7:31:38 [0] NCCL INFO ncclCommInitRank - init returned 2"


def test_of_a_device_that_cannot_be_opened_nobody_says_that_data_were_sent() -> None:
    opened = ("misc/ibvwrap.cc:126 NCCL WARN Call to ibv_open_device failed",
              "transport/net_ib.cc:649 NCCL WARN NET/IB : Unable to open device mlx5_1")  # fmt: skip
    told = page(said([*(NCCL + each for each in opened), f"{NCCL}NCCL INFO NET/IB : No device found."]))
    assert "acknowledged" not in told and "open" in told.split("Evidence")[0]


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        (("110 Connection timed out", "INIT", "RTR", "3", "::ffff:10.0.0.7", "::ffff:10.0.9.7"), "10.0.9.7"),
        (("22 Invalid argument", "RESET", "INIT", "-1", "N/A", "N/A"), "NCCL_IB_PKEY"),
    ],
    ids=("unreachable", "pkey"),
)
def test_a_queue_pair_that_is_refused_gets_the_remedy_of_its_errno(parts: tuple[str, ...], word: str) -> None:
    told = page(said([f"{NCCL}{QP.format(*parts)}", END]))
    assert word in told.split("What to do")[-1]


@pytest.mark.parametrize(("at", "said_so"), [("11:07:50", True), ("11:17:49", False)])
def test_an_error_that_nccl_kept_to_itself_is_named_with_the_minutes_until_the_timeout(at: str, said_so: bool) -> None:
    dropped = (
        "NCCL WARN NET/IB: Got completion from peer 10.0.9.7<55172> with status=12 opcode=129 len=0 vendor err 129"
    )
    lines = [f"[2026-06-02 {at}] {NCCL}transport/net_ib.cc:2453 {dropped}", watchdog(0)]
    told = " ".join(page(said(lines)).split())
    assert ("logged this error 10 minutes before the first timeout" in told) is said_so
    assert "10.0.9.7" in told


def test_a_port_that_went_down_is_the_first_line_though_a_lost_message_was_told_before() -> None:
    lost = (
        "node0:98:121 [0] transport/net_ib.cc:2453 NCCL WARN NET/IB: Got completion from peer 10.79.0.2<45642> with "
        "status=12 opcode=0 len=0 vendor err 129 (Recv) hca mlx5_0"
    )
    down = "node1:95:103 [0] transport/net_ib.cc:199 NCCL WARN NET/IB : mlx5_0:1 Got async error event: port error"
    (first, *_) = explain_bytes(f"{lost}\n{down}\n".encode()).causes
    assert first.cause == "ib_broken" and "port error" in first.evidence[0].text
    (first, *_) = explain_bytes(f"{lost}\n".encode()).causes
    assert "status=12" in first.evidence[0].text and "did not acknowledge data. The path" in first.verdict
