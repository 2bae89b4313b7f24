"""Flight recorder dumps: torch's own are read, hostile ones refused, and the rank that stayed behind is named."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.explain.explain_files import explain_paths
from preflight.explain.flight_recorder import find_clash, find_lag, read_recording
from preflight.explain.plain_pickle import load_plain

REAL = """
import sys, torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for _ in range(3):
    dist.all_reduce(torch.ones(4))
open(sys.argv[1], "wb").write(_dump_fr_trace())
"""


def _dump(seqs: range, name: str = "nccl:all_reduce", size: int = 4, group: str = "0") -> bytes:
    entries = [
        {
            "collective_seq_id": seq,
            "process_group": (group, "default_pg"),
            "profiling_name": name,
            "state": "completed",
            "input_sizes": [[size]],
            "is_p2p": False,
            "frames": [{"name": "main", "filename": "train.py", "line": 3}],
        }
        for seq in seqs
    ]
    return pickle.dumps({"version": "2.4", "entries": entries, "pg_config": {"0": {"name": "0"}}}, protocol=2)


class _Runs:
    """What a hostile pickle looks like."""

    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call[0], self._call[1:]


@pytest.mark.integration
def test_a_dump_that_torch_itself_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_5"
    environ = os.environ | {"TORCH_FR_BUFFER_SIZE": "100"}
    done = subprocess.run(
        [sys.executable, "-c", REAL, str(path)], env=environ, capture_output=True, text=True, check=False
    )
    if not path.exists():
        pytest.skip(f"this torch records no gloo collectives: {done.stderr[-200:]}")
    recording = read_recording(str(path), path.read_bytes())
    assert recording.rank == "5"
    assert [entry.name for entry in recording.entries] == ["gloo:all_reduce"] * 3
    assert [entry.seq for entry in recording.entries] == [1, 2, 3]


def test_the_rank_that_stayed_behind_and_what_it_missed_are_named() -> None:
    recordings = [read_recording(f"nccl_trace_rank_{r}", _dump(range(1, 9 if r != 2 else 6))) for r in range(4)]
    lag = find_lag(recordings)
    assert lag is not None
    assert (lag.ranks, lag.seq, lag.ahead_seq, lag.missing) == (("2",), 5, 8, "nccl:all_reduce")


def test_ranks_of_different_groups_are_never_compared() -> None:
    recordings = [read_recording(f"nccl_trace_rank_{r}", _dump(range(1, 5 + r), group=str(r))) for r in range(2)]
    assert find_lag(recordings) is None


def test_different_collectives_under_one_number_are_a_clash() -> None:
    one = read_recording("nccl_trace_rank_0", _dump(range(1, 4)))
    other = read_recording("nccl_trace_rank_1", _dump(range(1, 4), "nccl:all_gather"))
    clash = find_clash([one, other])
    assert clash is not None and clash.seq == 1 and clash.differ == ()
    third = read_recording("nccl_trace_rank_2", _dump(range(1, 4)))
    clash = find_clash([one, other, third])
    assert clash is not None and (clash.differ, clash.one[0], clash.other[0]) == (("1",), "1", "0")


def test_dumps_beside_a_log_name_the_straggler_of_its_timeout(tmp_path: Path) -> None:
    paths = []
    for rank in range(3):
        paths.append(tmp_path / f"nccl_trace_rank_{rank}")
        paths[-1].write_bytes(_dump(range(1, 9 if rank != 1 else 4)))
    cause = explain_paths([str(path) for path in paths]).causes[0]
    assert cause.cause == "watchdog_timeout_straggler"
    assert "rank 1" in cause.verdict


@pytest.mark.parametrize(
    "hostile",
    [
        pickle.dumps(_Runs(os.system, "touch /tmp/pwned")),
        pickle.dumps({"entries": [_Runs(eval, "1/0")]}),
        pickle.dumps({"entries": [], "x": Path("/etc/passwd")}),
        b"\x80\x02}(X\x07\x00\x00\x00entriesc__builtin__\neval\nu.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo index that would allocate 16 GiB
        b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00.",
        b"\x80\x02" + b"(" * 100_000 + b".",
        b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
        b"\x80\x02]q\x00h\x00a.",
        b"\x80\x02}("
        + b"".join(b"\x8a\x0f" + (k * (2**61 - 1)).to_bytes(15, "little") + b"N" for k in range(30_000))
        + b"u.",
        b"\x80\x02X\x02\x00\x00\x00ab(K\x01l.",
        b"\x80\x02N.",
        b"\x80\x02",
    ],
    ids=[
        "system",
        "eval",
        "path",
        "global",
        "frame",
        "memo",
        "bytearray",
        "marks",
        "nested",
        "itself",
        "equal hashes",
        "LIST",
        "none",
        "empty",
    ],
)
def test_a_pickle_of_anything_but_plain_values_is_refused(hostile: bytes) -> None:
    with pytest.raises(MalformedInput):
        read_recording("nccl_trace_rank_0", hostile)


def test_the_refusal_names_what_the_pickle_asked_for() -> None:
    with pytest.raises(MalformedInput, match=r"refused.*GLOBAL.*system"):
        read_recording("x", pickle.dumps(_Runs(os.system, "true"), protocol=2))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200).map(lambda data: b"\x80\x04" + data))
def test_arbitrary_pickles_are_read_or_refused(data: bytes) -> None:
    try:
        read_recording("nccl_trace_rank_0", data)
    except MalformedInput:
        return


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4) | st.tuples(inner)
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["collective_seq_id", "process_group", "profiling_name", "input_sizes"]), PLAIN)
    )
)
def test_dumps_with_odd_values_are_read(entries: list[dict[str, object]]) -> None:
    recording = read_recording("nccl_trace_rank_0", pickle.dumps({"entries": entries}, protocol=4))
    find_lag([recording, recording])
    find_clash([recording, recording])


PEAK = """
import resource, sys, time
from preflight.errors import MalformedInput
from preflight.explain.flight_recorder import read_recording
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_recording("nccl_trace_rank_0", b"\\x80\\x02" + eval(sys.argv[1]) + b".")
except MalformedInput:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.integration
@pytest.mark.parametrize("hostile", ["b'}' * 8_000_000", "b'(' * 8_000_000", "b']' * 900_000 + b'a' * 899_999"])
def test_a_dump_of_many_operations_takes_little_memory(hostile: str) -> None:
    done = subprocess.run([sys.executable, "-c", PEAK, hostile], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 110 << 10


def test_a_dump_of_more_operations_than_any_has_is_refused() -> None:
    with pytest.raises(MalformedInput, match="TORCH_FR_BUFFER_SIZE"):
        load_plain("nccl_trace_rank_0", b"\x80\x02" + b"N" * 2000 + b".", most_operations=1000)


def test_numbers_as_keys_that_all_hash_alike_are_refused() -> None:
    alike = (((2**61 - 1) * n).to_bytes(10, "little", signed=True) for n in range(1, 5000))
    data = b"\x80\x02}(" + b"".join(b"\x8a\x0a" + number + b"N" for number in alike) + b"u."
    with pytest.raises(MalformedInput, match="keys of a dump must be text"):
        load_plain("nccl_trace_rank_0", data)


def test_a_bomb_is_not_unpacked_beyond_what_a_dump_may_be(tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(gzip.compress(b"\x80\x02" + b"N" * (20 << 20)))
    with pytest.raises(MalformedInput, match="more than 16 MiB"):
        explain_paths([str(path)])


def test_of_a_long_dump_the_last_collectives_of_each_group_are_kept() -> None:
    recordings = [read_recording(f"nccl_trace_rank_{r}", _dump(range(1, 3000 - 9 * r))) for r in range(2)]
    assert {len(recording.entries) for recording in recordings} == {200}
    lag = find_lag(recordings)
    assert lag is not None and (lag.seq, lag.ahead_seq) == (2990, 2999)
