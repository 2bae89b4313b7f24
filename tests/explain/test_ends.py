"""How a run ended: servers that shut down in order, processes that exit on their own, and programs' last words."""

from __future__ import annotations

import pytest

from preflight.model.explanation import ExplainVerdict
from tests.explain.logs import explain_bytes
from tests.explain.test_stories import GAVE_UP, RAISED


def verdict_of(*lines: str) -> ExplainVerdict:
    return explain_bytes("\n".join([*lines, ""]).encode()).verdict


def test_a_server_that_shuts_down_in_order_has_ended_and_one_that_starts_again_has_not() -> None:
    begun = ("INFO:     Started server process [7]", "INFO:     Application startup complete.")
    ended = ("INFO:     Application shutdown complete.", "INFO:     Finished server process [7]")
    assert verdict_of(*begun, *ended) is ExplainVerdict.HEALTHY
    assert verdict_of(*begun, *ended, *begun) is not ExplainVerdict.HEALTHY
    assert verdict_of(*begun, *ended, begun[0], *RAISED) is not ExplainVerdict.HEALTHY
    assert verdict_of(*begun, *RAISED, *ended) is not ExplainVerdict.HEALTHY
    assert verdict_of(*ended) is not ExplainVerdict.HEALTHY


def test_processes_that_exit_on_their_own_after_no_error_have_ended() -> None:
    left = "[rank{}]:[W430 15:01:06.8 ProcessGroupNCCL.cpp:1250] WARNING: process group has NOT been destroyed before"
    work = tuple(f"step {i}/40 loss: 2.{i}" for i in range(6))
    assert verdict_of(*work, left.format(1), left.format(0)) is ExplainVerdict.HEALTHY
    assert verdict_of(*work, "real\t1m23.268s", "user\t1m40.026s", "sys\t0m35.075s") is ExplainVerdict.HEALTHY
    assert verdict_of(*work, left.format(1)) is ExplainVerdict.UNFINISHED  # rank 0 is still there
    assert verdict_of(left.format(0), *work) is ExplainVerdict.UNFINISHED
    assert verdict_of(*work, *RAISED, left.format(0)) is not ExplainVerdict.HEALTHY


@pytest.mark.parametrize(
    "ended",
    ["Training time 5:49:46", "2024-07-30 01:53:39 - LOGS - Training took 00:17:37.67", "Total wall time: 0:00:43",
     "vLLM Benchmark Suite Completed", "Return code: 0", "INFO Training done",
     '{"timestamp":1745007562.1,"name":"complete","context":{"status":0}}'],
)  # fmt: skip
def test_words_with_which_programs_report_their_end(ended: str) -> None:
    work = [f"step {i}/40 loss: 2.{i}" for i in range(6)]
    assert verdict_of(*work, ended) is ExplainVerdict.HEALTHY
    assert verdict_of(*work, *RAISED, f"{GAVE_UP}") is not ExplainVerdict.HEALTHY
