"""The table of processes: the first abnormal line of each, how it ended, and what it waited for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.explain.explain_files import explain_paths
from preflight.explain.explain_logs import Log, explain
from preflight.model.explanation import Explanation, ProcessEnd
from preflight.show.explain import explain_page
from preflight.show.json_document import render_json
from preflight.show.text import Detail, Style
from tests.explain.logs import explain_bytes, watchdog
from tests.explain.test_third_review import GLOO, HEADER, raised, torchrun

STEP = '/opt/app/train.py", line 44, in step'
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.4.0.2]:4711"
KEY = [HEADER, f'  File "{STEP}', "KeyError: 'caption'"]
WORKER = "(RayWorkerWrapper pid=451, ip=10.4.0.9) "


def of_ranks(logs: Mapping[int, list[str]], name: str = "rank_{}.log") -> Explanation:
    """Explain one log per rank."""
    return explain([Log(name.format(rank), ["\n".join([*lines, ""]).encode()]) for rank, lines in logs.items()])


def rows(explanation: Explanation) -> dict[str, ProcessEnd]:
    """Return the table by process."""
    return {row.process: row for row in explanation.processes}


def page(explanation: Explanation) -> str:
    """Return the whole page without its line breaks."""
    return " ".join(explain_page(explanation).shown(Detail.ALL, Style()).split())


def test_each_rank_has_its_first_line_its_end_and_what_it_waited_for() -> None:
    lines = [*raised(1, STEP, "KeyError: 'caption'"), watchdog(0, 7), watchdog(2, 7), *torchrun(1), *torchrun(0, -6)]
    explanation = explain_bytes("\n".join([*lines, ""]).encode())
    table = rows(explanation)
    assert list(table) == ["rank 1", "rank 0", "rank 2"]
    assert explanation.processes_in_order
    assert [(row.first.line if row.first else 0, row.ended, row.waited_for) for row in table.values()] == [
        (4, "KeyError, exit code 1", ""),
        (5, "SIGABRT", "ALLREDUCE number 7"),
        (6, "", "ALLREDUCE number 7"),
    ]
    assert json.loads(render_json(explanation))["processes"][0]["first"]["line"] == 4
    assert "rank 1: line 4, the program's own error; KeyError, exit code 1" in page(explanation)


def test_a_signal_of_torchruns_table_ends_a_rank_that_says_nothing_itself() -> None:
    lines = [watchdog(0), watchdog(1), *torchrun(2, -9)]
    silent = rows(explain_bytes("\n".join([*lines, ""]).encode()))["rank 2"]
    assert (silent.first, silent.ended) == (None, "SIGKILL")


def test_in_a_folder_the_rank_that_others_lost_is_the_one_without_an_error(tmp_path: Path) -> None:
    for rank in range(4):
        lines = ["starting"] if rank == 2 else raised(rank, STEP, CLOSED)
        (tmp_path / f"rank_{rank}.log").write_text("\n".join([*lines, ""]))
    explanation = explain_paths([str(tmp_path)])
    assert explanation.causes[0].cause == "remote_peer_died"
    assert explanation.summary.startswith("Rank 2 died or disconnected first")
    assert "rank 2's log" in explanation.causes[0].remedy
    assert "rank 2: no error in its log" in page(explanation)


@pytest.mark.parametrize("silent", [(), (1, 2), (0, 1, 2, 3)])
def test_without_one_silent_rank_none_is_named_as_lost(silent: tuple[int, ...]) -> None:
    explanation = of_ranks({r: ["starting"] if r in silent else raised(r, STEP, CLOSED) for r in range(4)})
    assert "died or disconnected first. The log of this rank" not in explanation.summary


def test_of_two_ranks_the_one_that_lost_the_other_does_not_accuse_it_by_its_silence() -> None:
    explanation = of_ranks({0: raised(0, STEP, CLOSED), 1: ["starting"]})
    assert explanation.summary.startswith("This log shows only secondary errors")


def test_the_rank_in_a_files_name_may_have_a_word_behind_it() -> None:
    explanation = of_ranks({0: [watchdog(0)], 1: [watchdog(1)], 2: KEY}, "rank{}_stderr.log")
    assert rows(explanation)["rank 2"].ended == "KeyError"
    assert explanation.summary.startswith("Only rank 2 of 3 stopped")


def test_the_order_across_logs_without_a_common_clock_is_unknown() -> None:
    explanation = of_ranks({0: [watchdog(0)], 1: KEY, 2: [watchdog(2)]})
    assert not explanation.processes_in_order
    assert "in unknown order" in page(explanation)
    assert of_ranks({0: [watchdog(0)], 2: [watchdog(2)]}).processes_in_order


def test_a_worker_without_a_rank_is_named_by_the_prefix_of_its_lines_and_its_launcher_is_none() -> None:
    lines = (f"{WORKER}free(): double free detected in tcache 2", "(raylet) A worker died or was killed: pid=451")
    explanation = explain_bytes("\n".join((*lines, "")).encode())
    assert list(rows(explanation)) == ["RayWorkerWrapper pid=451, ip=10.4.0.9"]


def test_a_run_that_went_well_has_no_table() -> None:
    assert of_ranks({0: ["# Avg bus bandwidth    : 412.7"], 1: ["step 3"]}).processes == ()


def test_alike_ranks_are_one_line_of_the_page() -> None:
    explanation = of_ranks({rank: [watchdog(rank)] for rank in range(64)})
    assert len(explanation.processes) == 64
    assert "ranks 0-63: first at 11:17:50.185 rank_0.log:1" in page(explanation)


@given(st.lists(st.sampled_from([
    *raised(1, STEP, GLOO), *KEY, *torchrun(3, -9), *torchrun(3), watchdog(0), watchdog(5, op="ALLGATHER"),
    f"{WORKER}free(): double free detected in tcache 2", "[rank7]: ", "\r", "exit code -", "task 4: exit code 300",
]), max_size=30), st.integers(0, 29))  # fmt: skip
def test_any_lines_make_a_table_with_each_process_once(lines: list[str], cut: int) -> None:
    explanation = of_ranks({0: lines[:cut], 1: lines[cut:]})
    names = [row.process for row in explanation.processes]
    assert len(names) == len(set(names))
    assert all(row.first is not None or row.ended or row.rank for row in explanation.processes)
    assert page(explanation)


def test_the_first_step_after_a_timeout_names_the_silent_rank_its_log_and_the_time() -> None:
    explanation = of_ranks({rank: ["step 7"] if rank == 2 else [watchdog(rank)] for rank in range(4)})
    assert explanation.causes[0].cause == "watchdog_timeout_straggler"
    first = explanation.causes[0].remedy.split("\n")[0]
    assert first.startswith("To find what delayed rank 2, read the rank's last lines (rank_2.log) at 11:07:")
