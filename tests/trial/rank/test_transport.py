"""What a rank says of the way its data went."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from preflight.model.nccl_log import read_nccl_log
from preflight.model.transport import texts_of
from preflight.trial.rank.transport import LAST, WARNINGS, gives_up, last_words

LOG = """\
node1:{pid}:{pid} [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>
node1:{pid}:{pid} [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>
node1:{pid}:{pid} [0] NCCL INFO Using network IB
node1:{pid}:{pid} [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node1:{pid}:{pid} [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node1:{pid}:{pid} [0] NCCL INFO Connected NVLS tree
"""
CHILD = """
import os, sys
from preflight.model.transport import texts_of
from preflight.trial.rank.transport import transport
with open(f"{sys.argv[1]}/1.node1.{os.getpid()}.log", "w") as file:
    file.write(sys.argv[2].replace("{pid}", str(os.getpid())))
os.environ["NCCL_DEBUG_FILE"] = f"{sys.argv[1]}/1.%h.%p.log"
print("|".join(texts_of(transport("nccl"))))
os.environ["NCCL_DEBUG_FILE"] = ""
print(transport("nccl"))
"""
SUMMARY = ["0>1 via P2P/CUMEM/read", "NVLS", "hca mlx5_0:1", "netif eth0", "network IB"]


def test_the_summary_names_each_pair_once_with_network_interfaces_and_cards() -> None:
    assert list(texts_of(read_nccl_log(LOG.format(pid=7).splitlines()).carriers())) == SUMMARY
    assert read_nccl_log([]).carriers() == ()


def test_a_rank_reads_its_own_log_only_and_says_nothing_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "1.node1.1.log").write_text(LOG.format(pid=1).replace("P2P/CUMEM/read", "SHM/direct"))
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), LOG], env=os.environ, capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == ["|".join(SUMMARY), "()"]


def test_the_last_words_of_a_process_are_its_warnings_and_the_end_of_its_log_with_their_numbers(tmp_path: Path) -> None:
    info = "node1:7:7 [0] NCCL INFO Channel\n"
    (tmp_path / "1.node1.7.log").write_text(info * 10 + "node1:7:7 [0] a.cc:1 NCCL WARN one\n\n" + info * 50)
    (tmp_path / "1.node1.8.log").write_text("node1:8:8 [1] a.cc:1 NCCL WARN two\n")
    path, lines = last_words(f"{tmp_path}/1.%h.%p.log", 7)
    assert path == f"{tmp_path}/1.node1.7.log"
    assert [line.line for line in lines] == [11, 59, 60, 61, 62]
    assert lines[0].text.endswith("NCCL WARN one")


def test_last_words_are_bounded_whatever_the_log_holds(tmp_path: Path) -> None:
    (tmp_path / "1.node1.7.log").write_bytes(b"x" * 1000 + b"\xff NCCL WARN \0\n" + b"a NCCL WARN b\n" * 500_000)
    _, lines = last_words(f"{tmp_path}/1.%h.%p.log", 7)
    assert len(lines) <= WARNINGS + LAST
    assert all(len(line.text) <= 300 for line in lines)
    assert lines[-1].line == 500_001


def test_a_process_without_a_log_has_no_last_words(tmp_path: Path) -> None:
    assert last_words(f"{tmp_path}/1.%h.%p.log", 7) == ("", ())
    assert last_words("", 7) == ("", ())


GIVEN_UP = (
    "node1:7:9 [0] net_ib.cc:1 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<1> with status={} opcode=0 len=0 "
    "vendor err {} (Recv) hca mlx5_0\n"
)


def test_a_transfer_that_was_given_up_is_found_once_its_line_is_complete_and_only_once(tmp_path: Path) -> None:
    log, read = tmp_path / "1.node1.7.log", dict[str, int]()
    line = GIVEN_UP.format(12, 129)
    log.write_text("node1:7:7 [0] NCCL INFO Channel\n" + line[:40])
    assert not gives_up(f"{tmp_path}/1.%h.%p.log", 7, read)
    log.write_text("node1:7:7 [0] NCCL INFO Channel\n" + line)
    assert gives_up(f"{tmp_path}/1.%h.%p.log", 7, read)
    assert not gives_up(f"{tmp_path}/1.%h.%p.log", 7, read)


def test_an_address_that_does_not_answer_for_five_seconds_is_given_up(tmp_path: Path) -> None:
    line = (
        "node1:7:9 [0] NCCL INFO Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr "
        "state INIT, next state RTR, local GID index 3, local GID ::ffff:10.0.10.2, remote GID ::ffff:10.0.10.1, "
        "retrying "
    )
    log = tmp_path / "1.node1.7.log"
    log.write_text(f"{line}9/35 after 900 msec of sleep\n")
    assert not gives_up(f"{tmp_path}/1.%h.%p.log", 7, {})
    log.write_text(f"{line}10/35 after 1000 msec of sleep\n")
    assert gives_up(f"{tmp_path}/1.%h.%p.log", 7, {})


def test_what_is_emptied_after_another_error_is_no_transfer_that_was_given_up(tmp_path: Path) -> None:
    (tmp_path / "1.node1.7.log").write_text(GIVEN_UP.format(5, 249))
    assert not gives_up(f"{tmp_path}/1.%h.%p.log", 7, {}) and not gives_up("", 7, {})
