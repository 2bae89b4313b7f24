"""The score of labelled logs: what an answer is worth, and a table that says so."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from scripts import score_explain
from scripts.score_explain import Answer, Case, Result, ask, cases, judge, labelled_folders, main

SHM = (
    "node-1:71:99 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-Ab12Cd to 9637892 bytes, "
    "error: No space left on device (28)\n"
)
OOM = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/job/train.py", line 8, in <module>\n'
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
)
DONE = '{\'loss\': 1.25, \'epoch\': 1.0}\n:::MLLOG {"key": "run_stop", "metadata": {"status": "success"}}\n'


def label(folder: Path, name: str, cause: str, text: str | None = None, **about: Any) -> None:
    """Write a label, and a log beside it."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"label": cause, "also_acceptable": [], **about}))
    if text is not None:
        (folder / f"{name}.log").write_text(text)


@pytest.mark.parametrize(
    ("got", "confidence", "result"),
    [
        ("ib_broken", "high", Result.RIGHT),
        ("remote_peer_died", "low", Result.NEAR),
        ("not_enough_evidence", "none", Result.NOTHING),
        ("unfinished", "none", Result.NOTHING),
        ("p2p_broken", "high", Result.WRONG),
        ("not_nccl", "high", Result.FORBIDDEN),
        ("healthy", "none", Result.FORBIDDEN),
    ],
)
def test_an_answer_is_right_near_nothing_wrong_or_forbidden(got: str, confidence: str, result: Result) -> None:
    case = Case("set/1", ("1.log",), "ib_broken", ("remote_peer_died",), ("not_nccl",))
    scored = judge(case, Answer(got, confidence))
    assert scored.result is result
    assert not scored.is_alarm, "the run failed"


@pytest.mark.parametrize("run", ["healthy", "teardown_after_success"])
def test_a_cause_named_of_a_run_that_succeeded_is_an_alarm(run: str) -> None:
    case = Case("set/1", ("1.log",), run, ("teardown_after_success",) if run == "healthy" else ("healthy",))
    assert judge(case, Answer("ib_broken", "low")).is_alarm
    for quiet in ("healthy", "teardown_after_success", "not_enough_evidence"):
        assert not judge(case, Answer(quiet, "none")).is_alarm


def test_unfinished_is_near_of_a_healthy_run_that_may_go_on_and_nothing_of_one_that_failed() -> None:
    answer = Answer("unfinished", "none")
    assert judge(Case("set/1", ("1.log",), "healthy", ("not_enough_evidence",)), answer).result is Result.NEAR
    assert judge(Case("set/1", ("1.log",), "healthy"), answer).result is Result.NEAR
    assert judge(Case("set/1", ("1.log",), "teardown_after_success"), answer).result is Result.NOTHING
    assert judge(Case("set/1", ("1.log",), "not_enough_evidence"), answer).result is Result.NOTHING


def test_healthy_is_no_forbidden_answer_where_the_label_accepts_it() -> None:
    accepting = Case("set/1", ("1.log",), "not_enough_evidence", ("healthy",))
    assert judge(accepting, Answer("healthy", "none")).result is Result.NEAR
    refusing = Case("set/1", ("1.log",), "not_enough_evidence")
    assert judge(refusing, Answer("healthy", "none")).result is Result.FORBIDDEN


def test_a_forbidden_cause_named_after_the_first_is_told_apart() -> None:
    scored = judge(
        Case("set/1", ("1.log",), "ib_broken", (), ("not_nccl",)), Answer("ib_broken", "high", ("not_nccl",))
    )
    assert scored.result is Result.RIGHT
    assert scored.is_forbidden_beside


def test_a_label_stands_for_a_log_a_packed_log_or_a_folder_of_logs(tmp_path: Path) -> None:
    label(tmp_path, "1", "shm_too_small", SHM)
    label(tmp_path, "2", "cuda_oom_masked", confirmed=False)
    (tmp_path / "2.log.gz").write_bytes(gzip.compress(OOM.encode()))
    label(tmp_path, "3", "cuda_oom_masked")
    (tmp_path / "3" / "deep").mkdir(parents=True)
    (tmp_path / "3" / "rank0.log").write_text("nothing\n")
    (tmp_path / "3" / "deep" / "rank3.log").write_text(OOM)
    read = cases(tmp_path)
    assert [len(case.files) for case in read] == [1, 1, 2]
    assert [case.confirmed for case in read] == [True, False, True]
    assert [ask(case.files).got for case in read] == ["shm_too_small", "cuda_oom_masked", "cuda_oom_masked"]


def test_a_folder_without_labels_stands_for_the_labelled_ones_in_it(tmp_path: Path) -> None:
    label(tmp_path / "b", "1", "healthy", DONE)
    label(tmp_path / "a", "1", "healthy", DONE)
    (tmp_path / "none").mkdir()
    assert labelled_folders(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert labelled_folders(tmp_path / "a") == [tmp_path / "a"]


def test_a_label_without_a_log_or_against_itself_is_refused(tmp_path: Path) -> None:
    label(tmp_path / "lone", "1", "healthy")
    with pytest.raises(SystemExit, match="no log beside it"):
        cases(tmp_path / "lone")
    label(tmp_path / "torn", "1", "healthy", DONE, must_not=["healthy"])
    with pytest.raises(SystemExit, match="healthy is both accepted and forbidden"):
        cases(tmp_path / "torn")


def test_the_table_counts_every_log_once_and_has_a_line_for_every_miss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label(tmp_path / "one", "1", "shm_too_small", SHM)
    label(tmp_path / "one", "2", "host_oom_killed", OOM, confirmed=False, also_acceptable=["cuda_oom_masked"])
    label(tmp_path / "two", "1", "p2p_broken", OOM, must_not=["cuda_oom_masked"])
    label(tmp_path / "two", "2", "healthy", SHM)
    main([str(tmp_path)])
    table = capsys.readouterr().out.splitlines()
    rows = {line[:24].strip(): line[24:].split() for line in table[: table.index("")]}
    head = rows.pop("logs of")
    assert head == ["logs", "right", "near", "nothing", "wrong", "forbidden", "right", "or", "near", "alarms", "beside"]
    where = tmp_path.name
    assert rows[f"{where}/one"[-24:]] == ["2", "1", "1", "0", "0", "0", "50.0%", "100.0%", "0", "0"]
    assert rows[f"{where}/two"[-24:]] == ["2", "0", "0", "0", "1", "1", "0.0%", "0.0%", "1", "0"]
    assert rows["all"][:6] == ["4", "1", "1", "0", "1", "1"]
    assert rows["confirmed"][:2] == ["3", "1"]
    assert sum(int(rows[name][0]) for name in rows if name.startswith(("said", "no cause"))) == 4
    misses = table[table.index("misses") + 1 :]
    assert [line.split()[:5] for line in misses] == [
        ["forbidden", "two/1", "p2p_broken", "got", "cuda_oom_masked"],
        ["wrong", "two/2", "healthy", "got", "shm_too_small"],
    ]


def test_the_records_hold_what_the_table_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label(tmp_path / "one", "1", "shm_too_small", SHM, source="someone/project#7")
    main(["--json", str(tmp_path / "one")])
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["case"], record["source"], record["result"]) == ("one/1", "someone/project#7", "right")
    assert record["confidence"] in score_explain.CONFIDENCES


def test_a_folder_without_any_label_is_a_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path)])
    assert ended.value.code == 2
    assert "no labelled log" in capsys.readouterr().err
