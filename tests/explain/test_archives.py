"""Archives of logs are read as folders are: each file by its name, nothing on a disk, and no more than its price."""

from __future__ import annotations

import gzip
import io
import random
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.explain.explain_files import explain_paths
from preflight.model.explanation import Explanation
from preflight.show.explain import explain_page
from preflight.show.text import Detail, Style
from preflight.system import archives
from preflight.system.archives import is_archive, members
from tests.conftest import PROJECT
from tests.explain.logs import watchdog

OOM = b"[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.24 GiB.\n"
DONE = b"".join(b"{'loss': %d.5}\n" % i for i in range(20)) + b"Training completed successfully\n"
LONG = "logs/" + "deep/" * 40 + "rank_3.log"
FORMS = ("zip", "tar", "gztar", "bztar", "xztar")


def _folder(path: Path) -> Path:
    """Return a folder as people pack it: logs, packed logs, and what lies beside them."""
    files = {
        "rank_0.log": watchdog(0).encode() + b"\n",
        "rank_3.log.gz": gzip.compress(OOM),
        "train.py": OOM,
        "core": random.Random(1).randbytes(9000),
        "empty.err": b"",
        ".hidden": OOM,
    }
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def _notes(explanation: Explanation) -> dict[str, str]:
    return {source.name: source.note for source in explanation.sources if source.note}


def _tar(form: int, **files: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=form) as archive:
        for name, data in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return packed.getvalue()


def _zip(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


class _Pipe(io.BytesIO):
    """A file that can't be gone back in: zipfile then writes each size behind its file."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation


def _read(packed: bytes) -> dict[str, bytes]:
    pieces = (packed[at : at + 1000] for at in range(0, len(packed), 1000))
    read = {}
    for member in members(packed[:512], pieces):
        read[member.name] = b""
        while piece := member.read(700):
            read[member.name] += piece
    return read


@pytest.mark.parametrize("form", FORMS)
def test_an_archive_is_the_folder_that_was_packed(form: str, tmp_path: Path) -> None:
    path = shutil.make_archive(str(tmp_path / "run"), form, _folder(tmp_path / "logs"))
    before = sorted(tmp_path.rglob("*"))
    explanation = explain_paths([path])
    assert explanation.causes[0].cause == "cuda_oom_masked"
    quoted = explanation.causes[0].evidence[0]
    assert (quoted.source.split(":")[1].removeprefix("./"), quoted.rank) == ("rank_3.log.gz", "3")
    reasons = {name.rsplit("/", 1)[-1].rsplit(":", 1)[-1]: why for name, why in _notes(explanation).items()}
    assert (reasons["train.py"], reasons["core"]) == ("by its name no log", "binary data")
    assert "Input: 2 logs" in explain_page(explanation).shown(Detail.ALL, Style(width=100))
    assert sorted(tmp_path.rglob("*")) == before


def test_an_archive_in_a_folder_is_read_and_one_in_an_archive_is_named(tmp_path: Path) -> None:
    inner = _tar(tarfile.PAX_FORMAT, **{"rank_1.log": OOM})
    (tmp_path / "pods.tgz").write_bytes(
        gzip.compress(_tar(tarfile.GNU_FORMAT, **{"pod-0.log": DONE, "more.tar": inner}))
    )
    explanation = explain_paths([str(tmp_path)])
    assert explanation.verdict.value == "healthy"
    assert [why for name, why in _notes(explanation).items() if name.endswith(":more.tar")] == [
        "an archive inside an archive: unpack it first"
    ]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_of_each_kind_of_tar_are_read(form: int) -> None:
    assert _read(_tar(form, **{LONG: OOM, "b": b""})) == {"..." + LONG[-200:]: OOM, "b": b""}


def test_a_zip_that_was_written_into_a_pipe_is_read() -> None:
    files = {"rank_0.log": OOM * 9000, "none.log": b"", "rank_1.log": random.Random(2).randbytes(70_000)}
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    assert _read(pipe.getvalue()) == files


@pytest.mark.parametrize("pack", [_zip, lambda **files: _tar(tarfile.PAX_FORMAT, **files)], ids=["zip", "tar"])
@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
def test_an_archive_that_is_cut_off_is_read_so_far_and_never_healthy(
    pack: object, share: float, tmp_path: Path
) -> None:
    assert callable(pack)
    noise = "".join(f"eval {random.Random(i).random()}\n" for i in range(3000)).encode()
    whole = pack(**{"rank_0.log": DONE + noise, "rank_1.log": DONE + noise})
    (tmp_path / "whole").write_bytes(whole)
    assert explain_paths([str(tmp_path / "whole")]).verdict.value == "healthy"
    (tmp_path / "cut").write_bytes(whole[: int(len(whole) * share)])
    explanation = explain_paths([str(tmp_path / "cut")])
    assert (explanation.verdict.value, explanation.exit_code) == ("unfinished", 3)
    assert any("cut off" in note for note in _notes(explanation).values())


def test_the_name_of_a_file_in_an_archive_can_not_draw_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(_tar(tarfile.PAX_FORMAT, **{"\x1b[2J\nFOUND\u202e/../../rank_0.log": OOM}))
    explanation = explain_paths([str(tmp_path / "x.tar")])
    assert explanation.sources[0].name.endswith(r":\x1b[2J\x0aFOUND\x202e/../../rank_0.log")


def test_an_archive_without_a_log_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(_zip(**{"weights.bin": OOM}))
    explanation = explain_paths([str(tmp_path / "x.zip")])
    assert explanation.exit_code == 3
    assert _notes(explanation)[str(tmp_path / "x.zip")] == "it contains no log"


def test_an_archive_that_grows_beyond_its_price_is_left_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 20)
    (tmp_path / "bomb.zip").write_bytes(_zip(**{f"rank_{rank}.log": b"\n" * (1 << 20) for rank in range(40)}))
    explanation = explain_paths([str(tmp_path / "bomb.zip")])
    assert "is not a log" in " ".join(_notes(explanation).values())
    assert sum(source.size_bytes for source in explanation.sources) < 4 << 20
    assert explanation.exit_code == 3


def test_more_files_than_an_archive_of_logs_has_are_not_read() -> None:
    packed = _tar(tarfile.USTAR_FORMAT, **{f"{n}.log": b"" for n in range(10_001)})
    with pytest.raises(MalformedInput, match="more than 10000 files"):
        _read(packed)


def test_a_zip_that_is_encrypted_says_so(tmp_path: Path) -> None:
    packed = bytearray(_zip(**{"rank_0.log": OOM}))
    packed[6] |= 1
    (tmp_path / "x.zip").write_bytes(packed)
    assert "encrypted" in _notes(explain_paths([str(tmp_path / "x.zip")])).values()


def test_the_page_shows_what_is_said_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"rank_0.log": watchdog(0).encode() + b"\n", "rank_1.log": OOM[9:], "train.py": b"", "rank_2.log": DONE}
    packed = _tar(tarfile.USTAR_FORMAT, **{f"logs/{name}": data for name, data in files.items()})
    (tmp_path / "job-logs.tar").write_bytes(packed[: packed.rindex(b"'loss': 5")])
    monkeypatch.chdir(tmp_path)
    explanation = explain_paths(["job-logs.tar"])
    lines = explain_page(explanation).shown(Detail.ALL, Style(width=80)).splitlines()
    footer = lines[next(number for number, line in enumerate(lines) if line.startswith("Input: ")) :]
    assert "\n".join([*lines[:2], *footer]) in (PROJECT / "docs" / "explain.md").read_text(encoding="utf-8")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_archive_is_read_or_refused(data: st.DataObject) -> None:
    whole = data.draw(
        st.sampled_from([_zip(a=OOM, b=b"x" * 900), _tar(tarfile.GNU_FORMAT, **{"a": OOM, LONG: OOM}), _piped()])
    )
    packed = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for at in data.draw(st.lists(st.integers(0, max(0, len(packed) - 1)), max_size=4)):
        packed[at : at + 1] = data.draw(st.binary(max_size=3))
    head = bytes(packed[:512])
    if not is_archive(head):
        return
    size = 0
    try:
        for member in members(head, _pieces(bytes(packed), data.draw(st.integers(1, 600)))):
            assert "\n" not in member.name
            size += len(member.read(1 << 20))
    except MalformedInput as error:
        assert str(error)
    assert size < 1 << 20


def _piped() -> bytes:
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", OOM)
        archive.writestr("b", b"")
    return pipe.getvalue()


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))
