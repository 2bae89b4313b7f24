"""Whatever the bytes are: an answer or our own error, in time linear in their number, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.errors import UsageError
from preflight.explain.cause import Sign, all_causes
from preflight.explain.context_lines import PATTERNS
from preflight.explain.explain_files import explain_paths
from preflight.explain.explain_logs import Log, explain
from preflight.model.explanation import ExplainVerdict
from preflight.model.job_phases import WORDS
from preflight.system import log_source, unpack
from tests.explain.logs import cause_of, corpus, explain_bytes, watchdog
from tests.explain.messages import MESSAGES

pytestmark = pytest.mark.heavy(4)

SIGNS = [sign for cause in all_causes() for sign in cause.signs]
Need = Callable[[str, bool, str], None]
ALL_MESSAGES = "\n".join(message for messages in MESSAGES.values() for message in messages)
FRAGMENTS = st.sampled_from(ALL_MESSAGES.split()) | st.sampled_from(
    ["\n", "\r", "\r\n", "\0", "\x1b[31m", "\ufffd", " "]
)
OOM = b"[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.24 GiB.\n"
RE_S = 0.15  # for 20 kB: linear patterns take up to 0.03 s, a quadratic one 0.4
SLOWEST_MB_S = (
    2.0  # of processor time, for lines that are nothing but signs; a catastrophic pattern is a thousand times slower
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=20))
def test_arbitrary_bytes_get_an_answer(chunks: list[bytes]) -> None:
    assert explain([Log("noise", chunks)]).verdict in ExplainVerdict


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAGMENTS, max_size=80), st.text(" \n:", max_size=2))
def test_shreds_of_messages_get_an_answer(fragments: list[str], glue: str) -> None:
    assert explain_bytes(glue.join(fragments).encode()).verdict in ExplainVerdict


def test_small_pieces_of_a_log_change_nothing_of_the_answer() -> None:
    """The end of a log is kept from piece to piece."""
    whole = b"".join(b"step %d/900 loss: 2.%d\n" % (i, i) for i in range(900))
    whole += (
        b"ChildFailedError:\n  rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 8874)\n  error_file: <N/A>\n" * 2
    )
    pieces = [whole[at : at + 50] for at in range(0, len(whole), 50)]
    assert explain([Log("x", pieces)]) == explain([Log("x", [whole])])


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([m for messages in MESSAGES.values() for m in messages]), st.data())
def test_where_the_pieces_of_a_log_end_does_not_matter(message: str, data: st.DataObject) -> None:
    whole = f"step 1\n{message}\nstep 2\n".encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert [c.cause for c in explain([Log("x", pieces)]).causes] == [c.cause for c in explain_bytes(whole).causes]


def test_truncated_and_shuffled_logs_of_the_corpus_get_an_answer(need: Need) -> None:
    cases = [case for case in corpus() if len(case.data) < 20000]
    need("corpus", bool(cases), "the corpus of labelled logs is not beside the project")
    rng = random.Random(7)
    for case in cases:
        data = case.data
        lines = data.splitlines(keepends=True)
        rng.shuffle(lines)
        for broken in (data[: rng.randrange(len(data) + 1)], data[rng.randrange(len(data) + 1) :], b"".join(lines)):
            assert explain_bytes(broken).verdict in ExplainVerdict


@pytest.mark.parametrize(
    "stuffing",
    [
        b"a",
        b"\0",
        b"\r",
        b" ",
        b"[",
        b"\x1b[",
        b"\xff\xfe",
        b"1:",
        b"rank 1 ",
        b"Rank[PG ",
        b"x.",
        b"DataLoader worker (pid",
        b"WorkNCCL(",
    ],
    ids=repr,
)
def test_a_line_of_ten_megabytes_does_not_hide_what_follows_and_costs_no_more_than_its_size(stuffing: bytes) -> None:
    start = time.process_time()
    assert cause_of(stuffing * (10_000_000 // len(stuffing)) + b"\n" + OOM) == "cuda_oom_masked"
    assert time.process_time() - start < 10 / SLOWEST_MB_S


def test_what_a_line_of_ten_megabytes_ends_with_is_found() -> None:
    assert cause_of(b"x" * 10_000_000 + b" " + OOM) == "cuda_oom_masked"


def _worst_cases(pattern: str) -> list[bytes]:
    """Return texts that begin as the pattern does, again and again, and never end as it wants."""
    literal = (
        "".join(char for char in pattern.split("|", maxsplit=1)[0] if char.isalnum() or char in " :._-/")[:40] or "x"
    )
    near = [literal, literal[:-1], literal + " ", literal + "0", literal[0], literal + "(" * 3]
    return [(text * (200_000 // len(text))).encode() for text in near if text]


def is_quick(text: bytes) -> bool:
    """Tell whether a text takes no more than its size allows; other load only adds time: the best of three counts.

    200 kB of lines with a sign each take up to 0.7 s of a quiet machine, and 0.9 beside another test; a quadratic
    pattern takes minutes.
    """
    for _ in range(3):
        start = time.process_time()
        explain_bytes(text)
        if time.process_time() - start < 0.5 + len(text) / 1e6 / SLOWEST_MB_S * 10:
            return True
    return False


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.name)
@pytest.mark.integration
@pytest.mark.heavy(3)
def test_no_pattern_is_slow_on_its_worst_case(sign: Sign) -> None:
    for text in _worst_cases(sign.pattern):
        for shaped in (
            text,
            text.replace(b" ", b"\n"),
            b"\n".join(text[i : i + 150] for i in range(0, len(text), 150)),
        ):
            assert is_quick(shaped)


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_no_pattern_of_the_surroundings_is_slow_on_its_worst_case(name: str) -> None:
    for text in _worst_cases(PATTERNS[name]):
        assert is_quick(text)


def test_without_re2_no_pattern_is_quadratic_either() -> None:
    """Python's own `re` stands in for it, and goes back over what it took: a leading `\\d+` made it quadratic."""
    stuffing = [b"0", b"a", b"0:", b"0/", b"a.", b"a ", b"[", b" ", b"\t", b"'", b"-", b"f"]
    words = [(phase.value, pattern) for phase, pattern in WORDS.items()]
    for name, pattern in [*((sign.name, sign.pattern) for sign in SIGNS), *PATTERNS.items(), *words]:
        search = re.compile(f"(?m){pattern}".encode("ascii")).search
        for each in (*stuffing, *(text[:40] for text in _worst_cases(pattern))):
            text = each * (20_000 // len(each))
            times = []
            for _ in range(3):
                start = time.process_time()
                search(text)
                times.append(time.process_time() - start)
                if times[-1] < RE_S:
                    break
            assert min(times) < RE_S, (name, each)


@pytest.mark.integration
def test_a_flood_of_one_message_costs_no_more_than_its_size_and_does_not_hide_the_cause() -> None:
    flood = "\n".join(watchdog(rank % 8, seq=rank) for rank in range(60_000)).encode()
    start = time.process_time()
    assert cause_of(flood + b"\n" + OOM) == "cuda_oom_masked"
    assert time.process_time() - start < len(flood) / 1e6 / SLOWEST_MB_S


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress, bz2.compress],
    ids=["gzip", "xz", "zstd", "bzip2"],
)
def test_a_packed_log_is_read_and_several_members_too(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "job.log.1"
    path.write_bytes(pack(b"step 1\n" * 50_000) + pack(OOM))
    explanation = explain_paths([str(path)])
    assert explanation.causes[0].cause == "cuda_oom_masked"
    assert explanation.causes[0].evidence[0].line == 50_001


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress, bz2.compress],
    ids=["gzip", "xz", "zstd", "bzip2"],
)
def test_a_packed_log_that_is_cut_off_is_read_as_far_as_it_goes(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    rng = random.Random(1)
    noise = "".join(f"step {rng.random()}\n" for _ in range(60_000)).encode()
    path.write_bytes(pack(OOM + noise)[:-5000])
    explanation = explain_paths([str(path)])
    assert explanation.causes[0].cause == "cuda_oom_masked"
    assert "cut off" in explanation.sources[0].note


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress, bz2.compress],
    ids=["gzip", "xz", "zstd", "bzip2"],
)
def test_a_compression_bomb_is_left_early_and_said_so(
    pack: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_source, "FREE_BYTES", 16 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(pack(b"\0" * (64 << 20)))
    source = explain_paths([str(path)]).sources[0]
    assert source.size_bytes < 32 << 20
    assert "no log" in source.note


def test_garbage_behind_the_magic_of_a_packed_file_is_said(tmp_path: Path) -> None:
    for magic in (unpack.GZIP, unpack.XZ, unpack.ZSTD, b"BZh91AY&SY"):
        path = tmp_path / "broken"
        path.write_bytes(magic + b"garbage" * 100)
        assert "damaged" in explain_paths([str(path)]).sources[0].note


def test_a_log_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    for path in (str(tmp_path / "none.log"), str(tmp_path), "nul\0byte"):
        with pytest.raises(UsageError):
            explain_paths([path])
