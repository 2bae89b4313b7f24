"""The releases of NCCL that CI pins were looked at; the news are read from any library."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from preflight.model.nccl_variables import VARIABLES
from preflight.search.settings.environment import DIAGNOSTIC
from scripts.nccl_news import DONE, Review, Strings, news, read_strings, unreviewed
from tests.simcuda import places

REVIEW = Review.read()


def library(path: Path, *texts: str) -> Path:
    """Write an ELF file that holds nothing but constants."""
    data = b"".join(text.encode() + b"\0" for text in texts)
    names = b"\0.rodata\0.nv_fatbin\0.shstrtab\0"
    code = b"\0NCCL_IN_GPU_CODE\0"
    head = 64
    at = {"data": head, "code": head + len(data), "names": head + len(data) + len(code)}
    table = at["names"] + len(names)
    sections = [
        (0, 0, 0), (names.index(b".rodata"), at["data"], len(data)),
        (names.index(b".nv_fatbin"), at["code"], len(code)),
        (names.index(b".shstrtab"), at["names"], len(names)),
    ]  # fmt: skip
    elf = (
        b"\x7fELF\x02\x01\x01" + b"\0" * 9 + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 4, 3)
    )
    elf += data + code + names
    for name, offset, size_bytes in sections:
        elf += struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, size_bytes, 0, 0, 1, 0)
    path.write_bytes(elf)
    return path


def test_the_releases_that_ci_pins_were_looked_at() -> None:
    assert set(places.NCCL) <= set(REVIEW.versions)
    assert all(len(who) > 10 for who in REVIEW.versions.values())


def test_what_was_done_is_one_of_four_and_is_true() -> None:
    rows = {variable.name for variable in VARIABLES}
    for name, done in REVIEW.names.items():
        word, _, reason = done.partition(": ")
        assert word in DONE, name
        assert bool(reason) is (word == "not for us"), name
        assert (name in rows) is (word == "read"), name
        assert (name in DIAGNOSTIC) is (word == "prints only"), name


def test_names_and_texts_come_from_the_constants_alone(tmp_path: Path) -> None:
    found = read_strings(
        library(tmp_path / "a.so", "NCCL_NEW_NAME", "Failed to open device %d", "NCCL DIAG [%s] %s: %s", "short")
    )
    assert found.variables == {"NCCL_NEW_NAME"}
    assert found.warnings == {"Failed to open device %d"}
    assert found.diagnostics == {"NCCL DIAG [%s] %s: %s"}
    with pytest.raises(ValueError, match="no 64-bit ELF"):
        read_strings(Path(__file__))


def test_a_new_name_without_a_row_is_marked_and_a_beginning_counts_for_many() -> None:
    old = Strings(frozenset({"NCCL_GONE"}), frozenset(), frozenset({"Failed to do the old thing"}))
    new = Strings(frozenset({"NCCL_GIN_ANY", "NCCL_UNHEARD_OF"}), frozenset({"NCCL DIAG a new form"}), frozenset())
    lines = list(news(old, new, REVIEW, 9))
    assert any("+ NCCL_GIN_ANY" in line and "not for us: GPU-initiated" in line for line in lines)
    assert any(line.split()[1:] == ["NCCL_UNHEARD_OF", "?"] for line in lines)
    assert "  - NCCL_GONE" in lines
    assert "  diagnostic texts: 1 came, 0 went" in lines
    assert unreviewed([old, new], REVIEW) == ("NCCL_UNHEARD_OF",)
