"""What a rank says of the way its data went."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from preflight.model.nccl_log import read_nccl_log, transport_summary
from preflight.rank.transport import left_behind

LOG = """\
gpu1:{pid}:{pid} [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>
gpu1:{pid}:{pid} [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>
gpu1:{pid}:{pid} [0] NCCL INFO Using network IB
gpu1:{pid}:{pid} [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
gpu1:{pid}:{pid} [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
gpu1:{pid}:{pid} [0] NCCL INFO Connected NVLS tree
"""
CHILD = """
import os, sys
from preflight.rank.transport import transport
with open(f"{sys.argv[1]}/1.gpu1.{os.getpid()}.log", "w") as file:
    file.write(sys.argv[2].replace("{pid}", str(os.getpid())))
os.environ["NCCL_DEBUG_FILE"] = f"{sys.argv[1]}/1.%h.%p.log"
print("|".join(transport("nccl")))
os.environ["NCCL_DEBUG_FILE"] = ""
print(transport("nccl"))
"""
SUMMARY = ["0>1 via P2P/CUMEM/read", "NVLS", "hca mlx5_0:1", "netif eth0", "network IB"]


def test_the_summary_names_each_pair_once_with_network_interfaces_and_cards() -> None:
    assert list(transport_summary(read_nccl_log(LOG.format(pid=7).splitlines()))) == SUMMARY
    assert transport_summary(read_nccl_log([])) == ()


def test_a_rank_reads_its_own_log_only_and_says_nothing_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "1.gpu1.1.log").write_text(LOG.format(pid=1).replace("P2P/CUMEM/read", "SHM/direct"))
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), LOG], env=os.environ, capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == ["|".join(SUMMARY), "[]"]


def test_what_a_dead_rank_used_and_its_last_warnings_are_read_from_its_log(tmp_path: Path) -> None:
    warnings = [f"gpu1:7:9 [0] shm.cc:{i} NCCL WARN Error while creating shared memory segment {i}" for i in range(5)]
    (tmp_path / "1.gpu1.7.log").write_text(LOG.format(pid=7) + "\n".join(warnings) + "\n")
    carried, told = left_behind(f"{tmp_path}/1.%h.%p.log", 7)
    assert carried == SUMMARY
    assert told == [f"NCCL WARN Error while creating shared memory segment {i}" for i in (2, 3, 4)]
    assert left_behind(f"{tmp_path}/1.%h.%p.log", 8) == ([], [])
    assert left_behind("", 7) == ([], [])
