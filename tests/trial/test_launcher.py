"""What the launcher makes of the events that reach it, and what it gives the ranks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import HarnessError, PreflightError
from preflight.model.codec import encode
from preflight.model.run_spec import Backend, Duel, NodePlace, RankGpus, RunSpec, TrialPlan
from preflight.search.profiles import stage_limits
from preflight.trial.agent_process import start_environment
from preflight.trial.launch_result import Launch, LaunchResult, parse_event
from preflight.trial.launcher import rank_environment
from tests.node_facts import trial

SPEC = RunSpec(
    run_dir="/run/preflight-x", backend=Backend("gloo", "", "gloo"), place=NodePlace(2),
    trials=TrialPlan((), stage_limits("gloo", None), duel_turns=2), deadline_monotonic_s=1e9,
)  # fmt: skip
DUEL = Duel("netif eth0", (), "rank 1 hung")


def after(*events: dict[str, Any]) -> LaunchResult:
    launched = Launch()
    for event in events:
        launched.take(event)
    return launched.result


def test_ready_notes_how_long_the_start_took() -> None:
    assert LaunchResult().ready_after_s == 0.0
    assert after({"event": "ready"}).ready_after_s > 0.0


def test_a_step_and_its_stages_are_what_is_running() -> None:
    step = {"event": "step", "label": "netif eth0"}
    assert after(step).running == "netif eth0"
    assert after(step, {"event": "stage", "stage": "init"}).running == "netif eth0 at init"
    stages = [{"event": "stage", "stage": stage} for stage in ("init", "timed 3/8")]
    assert after(step, *stages).running == "netif eth0 at timed step 3 of 8"


def test_results_are_kept_in_the_order_in_which_they_came() -> None:
    launched = after(
        {"event": "trial", "result": encode(trial())},
        {"event": "trial", "result": encode(trial("netif eth0"))},
        {"event": "duel", "duel": encode(DUEL)},
        {"event": "simulated"},
    )
    assert launched.trials == (trial(), trial("netif eth0"))
    assert launched.duels == (DUEL,)
    assert (launched.simulated, launched.done, launched.problem) == (True, False, "")


@pytest.mark.parametrize(
    ("exitcode", "how"), [(-9, "died by SIGKILL"), (-63, "died by"), (-99, "signal 99"), (1, "ended with exit code 1")]
)
def test_a_dead_supervisor_is_named_with_rank_cause_and_moment(exitcode: int, how: str) -> None:
    died = {"event": "supervisor_died", "rank": 1, "exitcode": exitcode}
    assert how in after(died).problem
    assert "process of rank 1" in after(died).problem
    assert "during netif eth0" in after({"event": "step", "label": "netif eth0"}, died).problem


def test_done_is_done() -> None:
    assert after({"event": "done"}).done


def test_an_event_of_unknown_kind_is_an_error_of_the_harness() -> None:
    with pytest.raises(HarnessError, match="unknown kind: hello"):
        after({"event": "hello"})


def test_half_a_line_of_a_conductor_that_was_killed_does_not_hide_who_died() -> None:
    whole = json.dumps({"event": "trial", "result": encode(trial())}).encode()
    fifo = (
        whole[: len(whole) // 2] + b"\n" + json.dumps({"event": "supervisor_died", "rank": 0, "exitcode": -9}).encode()
    )
    launched = after(*(parse_event(line) for line in fifo.split(b"\n")))
    assert launched.problem == "preflight's process of rank 0 died by SIGKILL during start"
    assert launched.trials == ()


def test_a_run_that_lost_a_line_is_not_through() -> None:
    with pytest.raises(HarnessError, match="damaged"):
        after(parse_event(b'{"event": "tri'), {"event": "done"})


LINES = st.binary(max_size=60) | st.text(alphabet='{}[]"event:,1 done', max_size=40).map(str.encode)


@given(LINES | st.just(b"[" * 100_000))
def test_any_line_is_an_event_that_is_taken_in_or_one_of_our_errors(line: bytes) -> None:
    launched = Launch()
    event = parse_event(line)
    assert "event" in event
    try:
        launched.take(event)
    except PreflightError as error:
        assert str(error)


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4))
def test_every_json_object_with_an_event_is_read_back(event: dict[str, Any]) -> None:
    event["event"] = "stage"
    assert parse_event(json.dumps(event).encode()) == event


def test_the_ranks_start_single_threaded_and_find_the_launcher_and_its_fifo() -> None:
    environ = start_environment(4711) | rank_environment(SPEC)
    assert (environ["OMP_NUM_THREADS"], environ["OPENBLAS_NUM_THREADS"]) == ("1", "1")
    assert environ["PREFLIGHT_PARENT_PID"] == "4711"
    assert environ["PREFLIGHT_EVENTS"].startswith(SPEC.run_dir)
    assert "attempts:1" in environ["RES_OPTIONS"]
    assert "CUDA_VISIBLE_DEVICES" not in environ


def test_the_ranks_see_exactly_the_chosen_gpus_in_their_order() -> None:
    spec = replace(SPEC, gpus=RankGpus(("GPU-b", "GPU-a")))
    environ = rank_environment(spec)
    assert (environ["CUDA_VISIBLE_DEVICES"], environ["CUDA_DEVICE_ORDER"]) == ("GPU-b,GPU-a", "PCI_BUS_ID")
