"""Whatever people have: folders of logs in every form, and a page that says what could not be read."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import json
import lzma
import os
import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.errors import UsageError
from preflight.explain.explain_files import explain_paths
from preflight.model.explanation import Explanation
from preflight.show.explain import explain_page
from preflight.show.text import Detail, Style
from preflight.system import log_source, unpack
from preflight.system.log_source import LogSource, as_utf8, is_binary, utf16_of
from tests.explain.logs import SEEDS, watchdog

OOM = b"[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.24 GiB.\n"
STEPS = b"".join(b"{'loss': %d.5}\n" % i for i in range(20))


def _write(folder: Path, **files: bytes) -> str:
    for name, data in files.items():
        _put(folder / name, data)
    return str(folder)


def _put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _first(explanation: Explanation) -> str:
    return explanation.causes[0].cause if explanation.causes else explanation.verdict.value


def _notes(explanation: Explanation) -> dict[str, str]:
    return {os.path.basename(source.name): source.note for source in explanation.sources if source.note}


def test_the_log_directory_of_torchrun_is_one_story_with_the_ranks_of_its_folders(tmp_path: Path) -> None:
    run = tmp_path / "4711_ab12cd34" / "attempt_0"
    for rank in range(12):
        _put(run / str(rank) / "stdout.log", STEPS)
        _put(run / str(rank) / "stderr.log", OOM[9:] if rank == 10 else watchdog(rank).encode() + b"\n")
        _put(run / str(rank) / "error.json", b"{}")
    explanation = explain_paths([str(tmp_path)])
    assert _first(explanation) == "cuda_oom_masked"
    assert explanation.causes[0].evidence[0].rank == "10"
    names = [source.name for source in explanation.sources]
    assert [n.split("/")[-2] for n in names if n.endswith("stderr.log")] == [str(rank) for rank in range(12)]


def test_of_several_runs_in_a_folder_the_last_one_is_explained_and_the_others_are_named(tmp_path: Path) -> None:
    old, new = _put(tmp_path / "slurm-9.out", OOM), _put(tmp_path / "slurm-10.out", watchdog(0).encode())
    os.utime(old, (1000, 1000))
    os.utime(new, (2000, 2000))
    explanation = explain_paths([str(tmp_path)])
    assert _first(explanation) == "watchdog_timeout_straggler"
    assert "another run (9)" in _notes(explanation)["slurm-9.out"]


def test_what_lies_beside_logs_is_left_out_with_the_reason(tmp_path: Path) -> None:
    folder = _write(
        tmp_path,
        **{
            "rank0.log": watchdog(0).encode(),
            "empty.log": b"",
            "train.py": OOM,
            "weights.safetensors": OOM,
            "core": bytes(range(256)) * 100,
            "rank1.log": OOM,
        },
    )
    os.mkfifo(tmp_path / "pipe")
    os.symlink("nowhere", tmp_path / "dangling.log")
    explanation = explain_paths([folder])
    assert _first(explanation) == "cuda_oom_masked"
    notes = _notes(explanation)
    assert notes["train.py"] == notes["weights.safetensors"] == "by its name no log"
    assert notes["core"] == "binary data"
    assert notes["pipe"] == "no regular file"
    assert "No such file" in notes["dangling.log"]
    page = explain_page(explanation).shown(Detail.ALL, Style(width=100))
    assert "Input: 2 logs" in page
    assert "by its name no log" in " ".join(page.split())


def test_pod_logs_that_are_links_are_followed_and_folders_that_are_links_are_not(tmp_path: Path) -> None:
    real = _put(tmp_path / "elsewhere" / "0.log", OOM)
    pods = tmp_path / "pods"
    pods.mkdir()
    os.symlink(real, pods / "trainer-0.log")
    os.symlink(tmp_path, pods / "loop")
    explanation = explain_paths([str(pods)])
    assert _first(explanation) == "cuda_oom_masked"
    assert len(explanation.sources) == 1


def test_the_last_session_of_ray_is_read(tmp_path: Path) -> None:
    for day, data in (("01", OOM), ("02", watchdog(0).encode())):
        path = _put(tmp_path / f"session_2026-11-{day}_10-00-00_123_77" / "logs" / "worker-1-77.err", data)
        os.utime(path, (int(day) * 1000, int(day) * 1000))
        _put(path.parent.parent / "runtime_resources" / "pip" / "x.log", OOM)
    assert _first(explain_paths([str(tmp_path)])) == "watchdog_timeout_straggler"


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_read_with_its_line_numbers(tmp_path: Path, codec: str) -> None:
    text = (STEPS + OOM).decode()
    path = _put(tmp_path / "job.log", text.encode(codec))
    explanation = explain_paths([str(path)])
    assert _first(explanation) == "cuda_oom_masked"
    assert explanation.causes[0].evidence[0].line == 21


def test_utf_16_is_read_in_a_folder_and_packed(tmp_path: Path) -> None:
    _put(tmp_path / "job.log.gz", gzip.compress(codecs.BOM_UTF16_LE + OOM.decode().encode("utf-16-le")))
    assert _first(explain_paths([str(tmp_path)])) == "cuda_oom_masked"


def test_json_records_are_read_from_a_file(tmp_path: Path) -> None:
    record = {"log": OOM.decode(), "stream": "stderr", "time": "2026-11-21T10:00:00Z"}
    path = _put(tmp_path / "abc-json.log", json.dumps(record).encode() + b"\n")
    assert _first(explain_paths([str(path)])) == "cuda_oom_masked"


@pytest.mark.parametrize(
    ("data", "why"), [(b"", "it is empty"), (os.urandom(4096), "binary data"), (b"\0" * 99, "zeros")]
)
def test_a_page_says_why_a_file_tells_nothing(tmp_path: Path, data: bytes, why: str) -> None:
    explanation = explain_paths([str(_put(tmp_path / "job.log", data))])
    assert explanation.exit_code == 3
    assert why in " ".join(explain_page(explanation).shown(Detail.ALL, Style(width=80)).split())


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress], ids=["gzip", "xz", "bzip2"])
def test_a_log_whose_packed_end_is_missing_is_not_called_healthy(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    rng = random.Random(1)
    noise = "".join(f"eval {rng.random()}\n" for _ in range(60_000)).encode()
    packed = pack(STEPS + b"Training completed successfully\n" + noise)
    assert _first(explain_paths([str(_put(tmp_path / "whole.log", packed))])) == "healthy"
    explanation = explain_paths([str(_put(tmp_path / "cut.log", packed[:-5000]))])
    assert (explanation.verdict.value, explanation.exit_code) == ("unfinished", 3)
    assert "the end of the log is missing" in explanation.summary
    both = explain_paths([str(tmp_path)])
    assert both.verdict.value == "unfinished"


def test_a_log_that_zeros_begin_after_a_crash_or_a_rotation_is_read(tmp_path: Path) -> None:
    explanation = explain_paths([str(_put(tmp_path / "job.log", b"\0" * 3_000_000 + OOM))])
    assert _first(explanation) == "cuda_oom_masked"


def test_chinese_text_in_its_old_encoding_is_a_log(tmp_path: Path) -> None:
    path = _put(tmp_path / "job.log", "训练开始,正在加载数据集\n".encode("gbk") * 50 + OOM)
    explanation = explain_paths([str(tmp_path)])
    assert path.exists()
    assert _first(explanation) == "cuda_oom_masked"
    assert _notes(explanation) == {}


def test_a_folder_without_a_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file in it"):
        explain_paths([str(tmp_path)])


def test_thousands_of_files_need_few_descriptors(tmp_path: Path) -> None:
    paths = [str(_put(tmp_path / f"rank_{rank}.log", b"step 1\n")) for rank in range(300)]
    _put(tmp_path / "rank_7.log", OOM)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        assert _first(explain_paths(paths)) == "cuda_oom_masked"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_log_that_grows_while_it_is_read_ends_where_it_ended(tmp_path: Path) -> None:
    path = _put(tmp_path / "growing.log", OOM)
    with contextlib.closing(log_source.open_log(str(path))) as source:
        _put(path, OOM * 1000)
        assert b"".join(source.chunks()) == OOM


def test_a_pipe_in_which_nothing_comes_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_source, "WRITER_S", 0.1)
    os.mkfifo(tmp_path / "fifo")
    found = explain_paths([str(tmp_path / "fifo")])
    assert "nothing came" in explain_page(found).shown(Detail.ALL, Style(width=120, colour=False, unicode=True))


def test_a_device_is_no_log() -> None:
    with pytest.raises(UsageError, match="/dev/zero: it is a device"):
        explain_paths(["/dev/zero"])


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    seed = str(SEEDS / "1_qwen_vl_oom_behind_timeout.log")
    assert len(explain_paths([seed, seed]).sources) == 1


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([unpack.GZIP, unpack.XZ, unpack.ZSTD, b"BZh91AY&SY", b""]), st.binary(max_size=300), st.data())
def test_whatever_lies_behind_a_magic_number_is_unpacked_or_said_to_be_damaged(
    magic: bytes, garbage: bytes, data: st.DataObject
) -> None:
    whole = data.draw(st.sampled_from([gzip.compress(OOM), bz2.compress(OOM), lzma.compress(OOM), b""]))
    packed = whole[: data.draw(st.integers(0, len(whole)))] + magic + garbage
    source = LogSource("x", io.BytesIO(packed))
    assert isinstance(b"".join(source.chunks()), bytes)
    assert isinstance(source.note, str)


@given(st.binary(max_size=200))
def test_any_bytes_are_binary_or_a_text_in_some_encoding(data: bytes) -> None:
    assert is_binary(data) in (True, False)
    assert utf16_of(data) in ("", "utf-16-le", "utf-16-be")
    assert b"".join(as_utf8("utf-16-le", [data[:7], data[7:]])).decode("utf-8") is not None
