"""What the kernel, py-spy and RAS say is read as it is, and rubbish is refused or skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.model.stuck_evidence import RasRank
from preflight.stuck.collect.jobs import ListedProcess, parse_stat, parse_uid
from preflight.stuck.collect.open_files import (
    file_system_of,
    parse_fdinfo,
    parse_locks,
    parse_mountinfo,
    parse_tcp,
    read_locks,
)
from preflight.stuck.collect.ras import parse_ras
from preflight.stuck.collect.stacks import parse_dump, why_not
from preflight.system.machine import Replay

TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:7148 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 6062875 1 0 100 0 0 10 0
   1: 01004F0A:C350 02004F0A:7148 01 00002000:00000010 01:00000014 00000007     0        0 42 1 0 100 0 0 10 0
"""
TCP6 = """  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode
   0: 0000000000000000FFFF00000100007F:7148 00000000000000000000000001000000:0050 01 0:0 00:0 0 0 0 77 1 0
"""
MOUNTS = """21 1 0:19 / / rw,relatime shared:1 - ext4 /dev/root rw
36 21 0:32 / /mnt/my\\040ckpt rw,relatime shared:9 master:1 - nfs4 server:/x rw
"""
LOCKS = """1: FLOCK  ADVISORY  WRITE 4711 fe:00:5474546 0 EOF
1: -> FLOCK  ADVISORY  WRITE 815 fe:00:5474546 0 EOF
2: POSIX  ADVISORY  READ 99 fe:00:1 0 EOF
"""
RAS = """NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Errors
======

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

#1-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 64
  Rank 5 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1
"""


def test_connections_are_read_with_queues_and_retransmissions() -> None:
    found = parse_tcp(TCP)
    assert (found[6062875].state, found[6062875].local) == ("LISTEN", "127.0.0.1:29000")
    assert (found[42].local, found[42].remote) == ("10.79.0.1:50000", "10.79.0.2:29000")
    assert (found[42].send_queue_bytes, found[42].receive_queue_bytes, found[42].retransmits) == (8192, 16, 7)


def test_ipv6_and_mapped_addresses_are_shown_as_people_write_them() -> None:
    assert (parse_tcp(TCP6)[77].local, parse_tcp(TCP6)[77].remote) == ("127.0.0.1:29000", "[::1]:80")


def test_the_file_system_is_that_of_the_longest_mount_point() -> None:
    mounts = parse_mountinfo(MOUNTS)
    assert file_system_of("/mnt/my ckpt/model.pt", mounts) == "nfs4"
    assert file_system_of("/mnt/my ckpts", mounts) == "ext4"


def test_who_waits_for_a_lock_is_told_with_its_holder() -> None:
    texts = {"proc/locks": LOCKS, "proc/4711/comm": "flock"}
    (lock,) = read_locks(Replay({"text": {path: {"value": text} for path, text in texts.items()}}), [815, 99])
    assert (lock.waiting_pid, lock.holding_pid, lock.holder, lock.path) == (815, 4711, "flock", "")


def test_the_locked_file_is_the_one_of_the_descriptor_that_has_the_lock() -> None:
    held = next(line for line in LOCKS.splitlines() if " 4711 " in line)
    texts = {"locks": LOCKS, "4711/fdinfo/0": "pos:\t0\n", "4711/fdinfo/3": f"pos:\t0\nlock:\t{held}\n"}
    links = {"proc/4711/fd/0": {"value": "/dev/null"}, "proc/4711/fd/3": {"value": "/data/set.lock"}}
    recorded: dict[str, dict[str, Any]] = {
        "text": {f"proc/{path}": {"value": text} for path, text in texts.items()},
        "names": {"proc/4711/fd": {"value": ["0", "3"]}},
        "link": links,
    }
    (lock,) = read_locks(Replay(recorded), [815])
    assert lock.path == "/data/set.lock"


def test_a_name_may_hold_anything() -> None:
    told = parse_stat("12 (a) R (b) S 7 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 555 1 2")
    assert told == {"name": "a) R (b", "state": "S", "parent": 7, "started": 555}


def test_ras_names_missing_ranks_and_those_behind() -> None:
    told = parse_ras(RAS, "localhost:28028")
    assert (told.nccl_version, told.is_level, told.missing) == (
        "2.27.5",
        False,
        (RasRank(21, 0, "", "does not answer"),),
    )
    assert told.behind == (RasRank(5, 1650386, "node1", "has launched 60 AllReduce operations, others 64"),)


def test_ras_of_older_ncclas_lists_the_ranks_behind() -> None:
    older = """#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  2 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
"""
    assert [each.rank for each in parse_ras(older, "x").behind] == [0, 2]


def test_a_rank_that_has_launched_nothing_is_behind_all() -> None:
    block = """#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different Broadcast operation counts
  2 ranks have launched up to operation 3
  Rank 1 has not launched any operations -- GPU 1 managed by process 20 on node 10.0.0.1
"""
    (behind,) = parse_ras(block, "x").behind
    assert behind == RasRank(1, 20, "10.0.0.1", "has launched 0 Broadcast operations, others 3")


@pytest.mark.parametrize(
    ("printed", "is_level", "missing", "behind"),
    [("level", True, [], []), ("behind", False, [], [2]), ("gone", False, [2], []), ("path", False, [], [])],
)
def test_what_nccl_2_27_5_prints_is_read(printed: str, is_level: bool, missing: list[int], behind: list[int]) -> None:
    told = parse_ras((Path(__file__).parent / f"ras/{printed}.txt").read_text(), "localhost:28028")
    assert (told.nccl_version, told.is_level) == ("2.27.5", is_level)
    assert ([each.rank for each in told.missing], [each.rank for each in told.behind]) == (missing, behind)
    assert {each.pid for each in (*told.missing, *told.behind)} <= {21}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["python", "train.py", "--wandb-api-key", "abc123", "--lr", "1"],
         "python train.py --wandb-api-key [hidden] --lr 1"),
        (["x", "--password=hunter2"], "x --password=[hidden]"),
        (["x", "HF_TOKEN=hf_abc"], "x HF_TOKEN=[hidden]"),
        (["x", "https://me:pw@host/y"], "x https://[hidden]@host/y"),
        (["x", "hf_abcdefGHIJKL0123456789mnopqrstuv99"], "x [hidden]"),
        (["x", "/data/a_long_directory_name_2026/with_many_parts/model.pt"],
         "x /data/a_long_directory_name_2026/with_many_parts/model.pt"),
    ],
)  # fmt: skip
def test_values_that_look_like_secrets_are_hidden(arguments: list[str], shown: str) -> None:
    process = ListedProcess(1, 0, 0, "python", "S", 1, tuple(arguments), {}, {}, frozenset())
    assert process.command == shown


def test_a_stack_is_read_without_local_variables() -> None:
    dump = [{"os_thread_id": 7, "thread_name": "MainThread", "owns_gil": True,
             "frames": [{"name": "f", "filename": "/a.py", "line": 3, "locals": [{"name": "secret"}]}]}]  # fmt: skip
    (stack,) = parse_dump(json.dumps(dump))
    assert (stack.tid, stack.has_gil, stack.frames[0].function, stack.frames[0].line) == (7, True, "f", 3)
    assert "secret" not in repr(stack)


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("Error: Failed to suspend process\n1: EPERM: Operation not permitted", "ptrace is forbidden"),
        ("Permission Denied: Try running again with elevated permissions", "ptrace is forbidden"),
        ("Error: Failed to find python version from target process", "no Python"),
        ("0: No such process (os error 3)", "had ended"),
        ("", "it said nothing"),
    ],
)
def test_why_there_is_no_stack_is_told_in_plain_words(stderr: str, words: str) -> None:
    assert words in why_not(stderr)


@given(st.text(max_size=400))
def test_any_text_is_read_or_refused(text: str) -> None:
    parse_tcp(text)
    parse_mountinfo(text)
    parse_locks(text, [1])
    parse_ras(text, "x")
    why_not(text)
    for parse in (parse_stat, parse_uid, parse_fdinfo):
        try:
            parse(text)
        except (ValueError, IndexError):
            continue


@pytest.mark.parametrize("number", ["1e999", "NaN", "9" * 5000, '"²"'])
def test_a_thread_s_number_that_is_none_is_refused(number: str) -> None:
    with pytest.raises(MalformedInput, match="py-spy's answer"):
        parse_dump(f'[{{"os_thread_id": {number}, "frames": []}}]')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["frames", "name", "line", "os_thread_id", "filename"]), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(JSON | st.lists(JSON, max_size=4))
def test_any_answer_of_py_spy_is_read_or_refused(document: object) -> None:
    try:
        parse_dump(json.dumps(document))
    except MalformedInput:
        return
