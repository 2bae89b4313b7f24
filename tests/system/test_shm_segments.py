"""Which files in /dev/shm NCCL's own log proves to be those of a rank of ours."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.system.shm_segments import unusable_segments
from tests.simcuda.kept_logs import kept

WARN = " NCCL WARN Error while creating shared memory segment "
PARTS = st.sampled_from(
    [WARN, " NCCL WARN Error: failed to extend ", "/dev/shm/nccl-", "Ab1", " to 1", " ", "../", "/"]
)


@pytest.mark.parametrize(
    ("version", "names"),
    [("2.21.5", {"lNu8io", "mn4ltU"}), ("2.27.5", {"VgGtTl"}), ("2.32.3", {"G7Pu3G"})],
)
def test_a_file_that_nccl_made_and_could_not_use_is_named_by_its_log(version: str, names: set[str]) -> None:
    found = unusable_segments(kept(version, "small-shm").splitlines())
    assert {f"/dev/shm/nccl-{name}" for name in names} <= found
    assert unusable_segments(kept(version, "shm").splitlines()) == frozenset()


def test_a_file_that_another_process_made_is_left_alone() -> None:
    others = "h:1:2 [0] NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-Ab12 (size 8)"
    assert unusable_segments([others]) == frozenset()
    elsewhere = others.replace("attaching to", "creating").replace("/dev/shm/", "/home/me/")
    assert unusable_segments([elsewhere]) == frozenset()


@given(st.lists(st.lists(PARTS | st.text(max_size=5), max_size=12).map("".join)))
def test_whatever_a_log_says_only_nccls_files_in_dev_shm_are_named(lines: list[str]) -> None:
    for path in unusable_segments(lines):
        assert os.path.normpath(path) == path
        assert os.path.dirname(path) == "/dev/shm" and os.path.basename(path).startswith("nccl-")
