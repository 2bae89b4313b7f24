"""Each row of signatures.toml, and each line of known_bugs.toml, is held.

Its line is recognized, and its remedy comes first; a row knows its versions.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.explain.linear_patterns import compile_any
from preflight.explain.signatures import PRINTED, Signature, find, read_versions, signatures
from preflight.model.explanation import Confidence, ExplainVerdict
from preflight.model.known_bugs import Effect, Surroundings
from tests.explain.logs import explain_bytes

ROWS = signatures()
TIMED_OUT = (
    "[rank3]:[E ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
)


def answer(row: Signature, *before: str) -> tuple[str, Confidence, str]:
    frame = ("Traceback (most recent call last):", '  File "/opt/app/train.py", line 30, in step')
    lines: tuple[str, ...] = (row.line,) if " NCCL WARN " in row.line else (*frame, row.line)
    if row.cause == "known_bug" and row.bug is not None and row.bug.effect is Effect.HANGS:
        lines = (row.line, TIMED_OUT)  # jobs that go on print it, too
    cause = explain_bytes("\n".join([*before, *lines]).encode() + b"\n").causes[0]
    return cause.cause, cause.confidence, cause.remedy.split("\n")[0]


def machine_of(row: Signature) -> Surroundings | None:
    bug = row.bug
    return Surroundings({}, bug.architecture, (bug.gpus,)) if bug is not None and bug.is_told_by_machine else None


def test_there_are_enough_rows_and_each_has_a_name_of_its_own() -> None:
    assert len(ROWS) >= 30
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_rows_line_gets_its_remedy_first(row: Signature) -> None:
    found = find([row.line], {}, machine_of(row))
    assert found is not None and found.row is row
    cause, confidence, step = answer(row, *(("GPU 0: NVIDIA GB10",) if machine_of(row) else ()))
    assert cause == row.cause
    assert step.startswith(found.remedy)
    assert "{1}" not in step
    assert confidence is Confidence.HIGH or not row.says


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_short_linear_and_has_a_source(row: Signature) -> None:
    assert row.source
    assert len(row.remedy) < 240
    assert not re.search(r"\(\?[=!<]|\\[1-9]", row.pattern.pattern)
    compile_any([row.pattern.pattern.encode("ascii").decode()])


def test_a_row_is_left_out_for_versions_that_do_not_need_it() -> None:
    row = next(row for row in ROWS if row.name == "nccl-shared-memory-of-blackwell")
    old, new = (
        "gpu-1:7:7 [0] NCCL INFO NCCL version 2.25.1+cuda12.8",
        "gpu-1:7:7 [0] NCCL INFO NCCL version 2.26.2+cuda12.8",
    )
    assert "NCCL 2.26 and newer do not need this step; this log has 2.25.1" in answer(row, old)[2]
    assert explain_bytes(f"{new}\n{row.line}\n".encode()).causes == ()
    since = next(row for row in ROWS if row.name == "weights-only")
    assert "weights_only" not in answer(since, "torch==2.5.1")[2]
    assert "weights_only" in answer(since, "torch==2.6.0")[2]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("gpu-1:7:7 [0] NCCL INFO NCCL version 2.28.9+cuda13.0", {"NCCL": "2.28.9"}),
        ("[2026-05-02 10:02:41 TP0] sglang is using nccl==2.27.5", {"NCCL": "2.27.5"}),
        ("PyTorch version: 2.10.0+cu128", {"torch": "2.10.0"}),
        ("INFO [api_server.py:7] vLLM API server version 0.11.2", {"vLLM": "0.11.2"}),
        ("ip-10-0-1-2:7:7 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.20.0", {"aws-ofi-nccl": "1.20.0"}),
        ("[pip3] flashinfer-python==0.6.8", {"flashinfer": "0.6.8"}),
        ("| NVIDIA-SMI 560.35.03   Driver Version: 560.35.03   CUDA Version: 12.6 |", {"driver": "560.35.03"}),
        ("Nvidia driver version: 580.126.09", {"driver": "580.126.09"}),
        ("version 3 of the data", {}),
    ],
)
def test_versions_are_read_as_libraries_print_them(line: str, found: dict[str, str]) -> None:
    assert read_versions(line) == found
    assert bool(re.search(PRINTED, line)) is bool(found)


@given(st.text(max_size=200))
def test_any_text_is_searched(text: str) -> None:
    assert find([text], {"torch": text}) is None or text


def test_a_message_that_a_rank_survived_or_that_came_after_another_error_is_not_the_cause() -> None:
    lines = [
        "Traceback (most recent call last):", '  File "/opt/app/a.py", line 3, in f', "KeyError: 'x'",
        "Traceback (most recent call last):", '  File "/opt/app/a.py", line 9, in g',
        "OSError: [Errno 24] Too many open files",
    ]  # fmt: skip
    cause = explain_bytes("\n".join(lines).encode() + b"\n").causes[0]
    assert "KeyError" in cause.verdict
    done = [*lines[3:], "Training finished."]
    assert not explain_bytes("\n".join(done).encode() + b"\n").causes


def test_a_known_message_that_no_line_connects_with_the_end_of_the_run_is_told_with_an_if() -> None:
    log = "1: step 3/40 loss: 2.1\n0: train.sh: error reading input file: Stale file handle\n"
    explanation = explain_bytes(f"{log}srun: error: gh007: task 0: Exited with exit code 2\n".encode())
    assert explanation.verdict is ExplainVerdict.NOT_ENOUGH_EVIDENCE
    assert explanation.notes[0].startswith("If line 2 ended the run: the storage lost a file that the job had open")
    assert "What helps: mount it again on that node" in explanation.notes[0]
