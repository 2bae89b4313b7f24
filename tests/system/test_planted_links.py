"""Whoever is not us is not touched: links of other users, modes, and what is no file."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from preflight.errors import OutputError, UsageError
from preflight.system import files
from preflight.system.files import check_writable, same_file, set_aside, write_atomically

NOBODY = 65534


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Return a link of another user in a directory where anybody may make files; it leads to a file of ours."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a link that is another user's")
    folder = tmp_path / "sticky"
    folder.mkdir()
    folder.chmod(0o1777)
    (tmp_path / "victim").write_text("secret")
    (tmp_path / "victim").chmod(0o600)
    link = folder / "preflight.env"
    link.symlink_to(tmp_path / "victim")
    os.lchown(link, NOBODY, NOBODY)
    return link


def test_a_link_that_another_user_planted_is_not_followed(planted: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is another user's"):
        check_writable(str(planted))
    with pytest.raises(OutputError, match="is another user's"):
        write_atomically(str(planted), "ours")
    assert (tmp_path / "victim").read_text() == "secret"
    assert os.listdir(planted.parent) == ["preflight.env"]


def test_nor_is_one_on_the_way(planted: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    way = planted.parent / "way"
    way.symlink_to(tmp_path / "folder")
    os.lchown(way, NOBODY, NOBODY)
    with pytest.raises(UsageError, match="is another user's"):
        check_writable(str(way / "report.json"))


@pytest.mark.parametrize("owner", ["ours", "the directory's"])
def test_a_link_of_ours_or_of_the_directory_s_owner_is_followed(planted: Path, tmp_path: Path, owner: str) -> None:
    if owner == "ours":
        os.lchown(planted, os.geteuid(), -1)
    else:
        os.chown(planted.parent, NOBODY, -1)
    write_atomically(str(planted), "ours")
    assert planted.is_symlink()
    assert (tmp_path / "victim").read_text() == "ours"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_of_ours_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    path.chmod(mode)
    write_atomically(str(path), "new")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_another_user_s_file_opens_nothing_wider(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a file that is another user's")
    path = tmp_path / "report.json"
    path.write_text("old")
    path.chmod(0o666)
    os.chown(path, NOBODY, NOBODY)
    before = os.umask(0o022)
    try:
        write_atomically(str(path), "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.stat().st_uid == os.geteuid()


def test_a_device_is_never_set_aside() -> None:
    assert set_aside("/dev/null") is None
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_fifo_that_nobody_reads_is_told_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "READER_S", 0.05)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UsageError, match="no process reads this FIFO"):
        check_writable(str(tmp_path / "fifo"))


def test_the_reader_of_a_fifo_gets_one_document_and_no_early_end(tmp_path: Path) -> None:
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    check_writable(path)
    assert not files.is_replaceable(path)
    with pytest.raises(BlockingIOError):  # empty, and somebody still holds it open: no end of file
        os.read(reader, 10)
    write_atomically(path, "one")
    assert os.read(reader, 10) == b"one"
    os.close(reader)


def test_a_reader_that_takes_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "DRAIN_S", 0.05)
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OutputError, match="its reader took nothing"):
        write_atomically(path, "x" * (1 << 21))
    os.close(reader)


def test_a_socket_is_told_as_such_and_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # its address has room for 107 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(UsageError, match="socket: can't be written: is a socket"):
            check_writable("socket")


def test_a_name_that_is_too_long_is_told_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name too long"):
        check_writable(str(tmp_path / ("r" * 300)))
    check_writable(str(tmp_path / ("\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 85)))  # 255 bytes


def test_two_names_of_one_file_are_seen_and_two_of_a_device_are_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert same_file(str(tmp_path / "file"), f"{tmp_path}/./link")
    assert not same_file(str(tmp_path / "file"), str(tmp_path / "other"))
    assert not same_file("/dev/null", "/dev/null")


def test_what_no_utf_8_can_hold_is_written_as_an_escape(tmp_path: Path) -> None:
    write_atomically(str(tmp_path / "x"), "half \ud800 pair")
    assert (tmp_path / "x").read_text() == "half \\ud800 pair"


def test_a_deleted_working_directory_is_named_and_one_deleted_later_is_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    check_writable("deleted-later.json")
    (tmp_path / "cwd").rmdir()
    with pytest.raises(UsageError, match="the working directory was deleted"):
        check_writable("asked-too-late.json")
    with pytest.raises(OutputError, match="no such file"):
        write_atomically("deleted-later.json", "x")
