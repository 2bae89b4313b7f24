"""What NCCL's own libraries say of themselves: their release, and every line that their diagnostics can print."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest

from preflight.model.nccl_diagnostics import FORMS, form_of
from preflight.stuck.collect.libraries import read_nccl_version
from tests.simcuda import places

pytestmark = [pytest.mark.simcuda, pytest.mark.usefixtures("simcuda")]


@pytest.mark.parametrize("version", places.NCCL)
def test_a_library_of_nccl_tells_its_release(version: str) -> None:
    assert read_nccl_version(str(places.nccl(version))) == version


def _forms(library: Path) -> list[str]:
    """Return the lines of diagnostics in a library's strings, each filled in as a report would."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        first, last = data.find(b"NCCL DIAG "), data.rfind(b"NCCL DIAG ")
        window = data[first - AROUND : last + AROUND]
    texts = [text.decode() for text in re.findall(rb"[\x20-\x7e]{8,}", window)]
    named = [text.partition("NCCL DIAG ")[2] for text in texts if "NCCL DIAG " in text]
    bare = [text for text in texts if REPORTED.match(text)]
    filled = (PLACE.sub(_sample, FILLED.sub(_named_place, text)) for text in (*named, *bare) if text != "%s")
    return [TAG.sub("", text).strip() for text in filled]


AROUND = 96 << 10
REPORTED = re.compile(
    r"(?:%s|[A-Z][\w /]{2,40}|rdma_topo check): .*\bcomm 0x%lx|S?Xid(?:/SXid:| %u detected) |NCCL environment: "
)
# What stands for a place that decides what a line says; of all others any text will do.
PLACES = {"^%s(?=p2p)": "", "^%s(?=: )": "CUDA driver version", r"(?<=failed )%s|(?<=mismatch )%s": "srcRank=0",
          "(?<=reported )%s": "Fatal", "(?<=IOMMU mode: )%s": "passthrough"}  # fmt: skip
FILLED = re.compile("|".join(f"({place})" for place in PLACES))
TAG = re.compile(r"^\[\w{2,8}\] {1,4}")
PLACE = re.compile(r"\[%s\] |%%|%[-+.0-9]*(?:llu|llx|lx|ld|lu|zu|[duxsf])|%\.\*s")


def _named_place(place: re.Match[str]) -> str:
    return list(PLACES.values())[(place.lastindex or 1) - 1]


def _sample(place: re.Match[str]) -> str:
    known = {"%%": "%", "[%s] ": "", "%s": "NCCL_A"}
    return known.get(place[0], "1.5" if place[0].endswith("f") else "7")


def test_every_form_that_the_newest_nccl_prints_is_read() -> None:
    library = places.nccl("2.32.3")
    forms = _forms(library)
    assert len(forms) > 70
    assert [form for form in forms if form_of(form) is None] == []
    assert [form for form in FORMS if form not in {form_of(text) for text in forms}] == [], "rows that nothing prints"
