"""What NCCL's own diagnosis printed, as rank 0's log has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.nccl_diagnostics import NcclDiagnosis, lines_of, may_run
from preflight.model.trial import Outcome
from preflight.trial.rank.diagnosis_log import MOST_CHARACTERS, MOST_LINES, read_diagnosis
from tests.node_facts import trial

BEGIN = "gpu-3:811 NCCL DIAG === NCCL Diagnostics ===\n"
FAILED = "p2p: write mismatch srcRank=0 srcCudaDev=0 dstRank=1 dstCudaDev=1 path=PIX expected=0x4 got=0x0"
END = "gpu-3:811 NCCL DIAG NCCL diagnostics completed in 41.0 ms across 2 ranks\n"


def read(
    folder: Path, text: str, outcome: Outcome = Outcome.OK, problem: str = "", stage: str = "done"
) -> NcclDiagnosis:
    (folder / "log").write_text(text)
    made = replace(trial("nccl-diagnosis"), outcome=outcome, problem=problem, stages=((0, stage), (1, stage)))
    return read_diagnosis(str(folder / "log"), "2.32.3", made, 1.5)


def test_the_lines_lose_ncclss_prefix_and_name_the_pair(tmp_path: Path) -> None:
    found = read(tmp_path, f"torch says\n{BEGIN}gpu-3:811 NCCL DIAG [INFO] {FAILED}\n{END}")
    assert found.lines[:2] == ("=== NCCL Diagnostics ===", FAILED)
    assert (found.problem, found.failed_pairs) == ("", {(0, 1): FAILED})


def test_a_collective_that_fails_after_the_diagnosis_is_no_problem_of_it(tmp_path: Path) -> None:
    assert read(tmp_path, BEGIN + END, Outcome.HANG, "all ranks hung in the first collective", "first").problem == ""


@pytest.mark.parametrize(
    ("text", "outcome", "problem", "stage", "expected"),
    [
        (BEGIN, Outcome.HANG, "hung at init", "init", "hung at init"),
        (BEGIN + END, Outcome.HANG, "hung at init", "init", "hung at init"),
        (BEGIN, Outcome.OK, "", "done", "NCCL printed no last line"),
        ("", Outcome.OK, "", "done", "NCCL printed no result"),
    ],
)
def test_a_diagnosis_without_an_end_says_why(
    tmp_path: Path, text: str, outcome: Outcome, problem: str, stage: str, expected: str
) -> None:
    assert read(tmp_path, text, outcome, problem, stage).problem == expected


def test_a_log_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    assert "could not be read" in read_diagnosis(str(tmp_path / "none"), "2.32.3", trial("default"), 1.0).problem


def test_a_flood_is_cut(tmp_path: Path) -> None:
    other = "".join(f"h:1 NCCL DIAG [OK]   Paths: {i}\n" for i in range(200))
    assert read(tmp_path, other + f"h:1 NCCL DIAG [INFO] {FAILED}\n" + END).failed_pairs, "what failed is kept first"
    flood = "".join(f"h:1 NCCL DIAG [INFO] {FAILED} {i} {'x' * 900}\n" for i in range(500))
    found = read(tmp_path, flood + END)
    assert len(found.lines) == MOST_LINES and max(map(len, found.lines)) <= MOST_CHARACTERS


@pytest.mark.parametrize(("version", "expected"), [("2.30.7", False), ("2.31.2", True), ("2.32.3", True), ("", False)])
def test_only_nccl_2_31_and_later_is_asked(version: str, expected: bool) -> None:
    assert may_run(version) is expected


@given(st.text())
def test_any_text_gives_lines(text: str) -> None:
    lines = lines_of(text + "\nh:1 NCCL DIAG " + text)
    made = NcclDiagnosis("2.32.3", lines, "", 1.0)
    assert set(made.failures) <= set(lines) and len(made.failed_pairs) <= len(made.failures)
