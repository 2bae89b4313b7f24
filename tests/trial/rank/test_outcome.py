"""What happened to a trial, from how every rank's child ended: each verdict of the design, on answers made by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.codec import encode
from preflight.model.collective import Collective
from preflight.model.gap import Gap
from preflight.model.run_spec import (
    Assignment,
    Backend,
    Measure,
    RankGpus,
    RankSamples,
    StageLimits,
    StorePlace,
)
from preflight.model.samples import pack_samples
from preflight.model.trial import LogLine, Outcome, RankEnd
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.trial.rank.outcome import RankAnswer, classify, slowest_connect_us, steps_of, trial_result

WAITED = ("timeout", "first", "RuntimeError: Timed out waiting 1400ms")
LOST = ("connection", "first", "RuntimeError: Connection closed by peer")
STUCK = ("stuck", "first", "process state S, silent for 2.0 s")
KILLED = ("killed", "first", "process state S, silent for 0.1 s")
STOPPED = ("stopped", "first", "process state T, silent for 2.0 s")
CRASHED = ("signal", "first", "died by SIGSEGV")
RAISED = ("error", "init", "RuntimeError: no such interface")
DONE = ("done", "done", "")
KINDS = (WAITED, LOST, STUCK, KILLED, STOPPED, CRASHED, RAISED, DONE)


def measured(
    rank: int, wrong: int = 0, size_bytes: int = 8, collective: str = "all_reduce", is_spread: bool = False
) -> dict[str, Any]:
    samples = RankSamples(rank, (1.0,) * 5, (2.0,) * 5, (0.1,) * 5, wrong, is_spread=is_spread)
    step = {"turn": 0, "collective": collective, "size_bytes": size_bytes, "took_s": 0.5}
    return {"measured": step, "samples": pack_samples(samples)}


def answers(*ends: tuple[str, str, str], events: dict[int, list[dict[str, Any]]] | None = None) -> list[RankAnswer]:
    return [
        {"end": encode(RankEnd(rank, *end)), "events": (events or {}).get(rank, []), "started_by": "fork"}
        for rank, end in enumerate(ends)
    ]


def test_ranks_that_are_done_with_right_data_are_ok() -> None:
    verdict = classify(answers(DONE, DONE, events={r: [measured(r)] for r in (0, 1)}), "")
    assert (verdict.outcome, verdict.problem, verdict.culprits) == (Outcome.OK, "", ())


def test_of_a_hang_the_silent_rank_is_the_cause_and_those_that_raised_waited() -> None:
    verdict = classify(answers(WAITED, STUCK, WAITED, LOST), "hang")
    assert (verdict.outcome, verdict.culprits) == (Outcome.HANG, (1,))
    assert "rank 1 hung at the first collective" in verdict.problem
    assert "ranks 0, 2, 3 timed out waiting" in verdict.problem


def test_who_is_silent_while_others_call_an_address_where_nobody_is_is_not_named() -> None:
    refused = (
        "timeout",
        "init",
        "RuntimeError: timed out connecting: SO_ERROR: Connection refused, remote=[127.0.1.1]",
    )
    verdict = classify(answers(STUCK, refused), "hang")
    assert (verdict.outcome, verdict.culprits) == (Outcome.HANG, ())


def test_several_silent_ranks_are_all_named() -> None:
    assert classify(answers(STUCK, WAITED, STUCK, WAITED), "hang").culprits == (0, 2)


def test_a_hang_in_which_all_raised_names_nobody() -> None:
    verdict = classify(answers(WAITED, WAITED, LOST), "hang")
    assert (verdict.outcome, verdict.culprits) == (Outcome.HANG, ())
    assert "all 3 ranks timed out waiting at the first collective" in verdict.problem


def test_a_connection_that_breaks_is_told_and_accuses_neither_end() -> None:
    closed = LogLine(
        7, "n1:61:78 [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer n1<9>"
    )
    made = answers(WAITED, WAITED, WAITED, WAITED)
    for rank in (1, 2):
        made[rank]["end"] = encode(RankEnd(rank, *WAITED, log=(closed,)))
    verdict = classify(made, "hang")
    assert (verdict.outcome, verdict.culprits) == (Outcome.HANG, ())
    assert verdict.problem.endswith(
        "no single rank is identifiable as the cause: ranks 1, 2 lost connections to others "
        "(socketProgress: Connection closed by remote peer)"
    )


def test_a_hang_in_which_nobody_raised_names_nobody() -> None:
    verdict = classify(answers(STUCK, STUCK), "hang")
    assert (verdict.outcome, verdict.culprits) == (Outcome.HANG, ())
    assert "both ranks hung" in verdict.problem


def test_ranks_that_were_done_did_not_wait_in_vain() -> None:
    verdict = classify(answers(DONE, WAITED, DONE), "hang")
    assert (verdict.outcome, verdict.culprits) == (Outcome.HANG, ())
    assert verdict.problem.startswith("rank 1 timed out waiting")


def test_a_stopped_process_is_named_whether_others_raised_or_not() -> None:
    for other in (WAITED, STUCK):
        verdict = classify(answers(other, other, STOPPED), "hang")
        assert (verdict.outcome, verdict.culprits) == (Outcome.HANG, (2,))
        assert "process state T" in verdict.problem


def test_a_signal_beats_the_connections_and_errors_that_came_of_it() -> None:
    verdict = classify(answers(LOST, RAISED, CRASHED, KILLED), "failed")
    assert (verdict.outcome, verdict.culprits) == (Outcome.CRASH, (2,))
    assert "rank 2 failed at the first collective: died by SIGSEGV" in verdict.problem


def test_an_error_beats_those_that_waited_for_it() -> None:
    verdict = classify(answers(WAITED, RAISED, KILLED), "failed")
    assert (verdict.outcome, verdict.culprits) == (Outcome.INIT_ERROR, (1,))
    assert "no such interface" in verdict.problem


@pytest.mark.parametrize("stage", ["first", "timed 3/8", "verified"])
def test_an_error_after_init_is_a_crash(stage: str) -> None:
    assert classify(answers(("error", stage, "x"), KILLED), "failed").outcome is Outcome.CRASH


@pytest.mark.parametrize("stage", ["spawned", "device", "store", "init"])
def test_an_error_on_the_way_to_the_group_is_an_init_error(stage: str) -> None:
    assert classify(answers(("error", stage, "x"), KILLED), "failed").outcome is Outcome.INIT_ERROR


def test_an_error_of_all_ranks_names_all() -> None:
    verdict = classify(answers(RAISED, RAISED, RAISED), "failed")
    assert verdict.culprits == (0, 1, 2)
    assert "ranks 0-2 failed at init" in verdict.problem


def test_a_process_that_outlives_sigkill_beats_everything() -> None:
    unkillable = ("unkillable", "first", "pid 7 survived SIGKILL for 5 s")
    verdict = classify(answers(CRASHED, unkillable, STOPPED), "hang")
    assert (verdict.outcome, verdict.culprits) == (Outcome.CRASH, (1,))
    assert "survived SIGKILL" in verdict.problem


def test_a_crash_outranks_the_hang_as_which_it_was_ended() -> None:
    assert classify(answers(CRASHED, STUCK), "hang").outcome is Outcome.CRASH


def test_a_trial_that_the_deadline_cut_off_is_skipped_with_where_it_was() -> None:
    verdict = classify(answers(KILLED, ("killed", "init", "")), "deadline")
    assert (verdict.outcome, verdict.culprits) == (Outcome.SKIPPED, ())
    assert verdict.problem == "the deadline came while rank 0 at the first collective, rank 1 at init"


def test_wrong_data_that_was_seen_before_the_deadline_stays_wrong() -> None:
    events = {0: [measured(0), measured(0)], 1: [measured(1, wrong=3)]}
    verdict = classify(answers(KILLED, KILLED, events=events), "deadline")
    assert (verdict.outcome, verdict.culprits) == (Outcome.WRONG_DATA, (1,))


def test_a_wrong_sum_in_the_first_collective_is_wrong_data_at_first() -> None:
    verdict = classify(answers(DONE, DONE, events={0: [{"first_wrong": 0}], 1: [{"first_wrong": 1}]}), "")
    assert (verdict.outcome, verdict.culprits) == (Outcome.WRONG_DATA, (1,))
    assert verdict.problem == "rank 1 got a wrong sum in the first collective"


def test_wrong_elements_are_named_with_rank_step_and_size() -> None:
    events = {r: [measured(r), measured(r, wrong=int(r == 2), size_bytes=1024)] for r in range(3)}
    verdict = classify(answers(DONE, DONE, DONE, events=events), "")
    assert (verdict.outcome, verdict.culprits) == (Outcome.WRONG_DATA, (2,))
    assert verdict.problem == "rank 2 got 1 wrong element in all_reduce of 1024 bytes (step 2/2)"


def test_wrong_data_that_calls_in_place_carried_to_all_accuse_the_rank_whose_own_call_was_wrong() -> None:
    events = {r: [measured(r, wrong=1, is_spread=r != 2)] for r in range(3)}
    verdict = classify(answers(DONE, DONE, DONE, events=events), "")
    assert (verdict.culprits, verdict.problem.split(" in ")[0]) == ((2,), "rank 2 got 1 wrong element")
    events = {r: [measured(r, wrong=1, is_spread=True)] for r in range(3)}
    assert classify(answers(DONE, DONE, DONE, events=events), "").culprits == (0, 1, 2)


def test_a_step_that_not_all_ranks_finished_gives_no_result() -> None:
    assert len(list(steps_of(answers(KILLED, KILLED, events={0: [measured(0), measured(0)], 1: [measured(1)]})))) == 1
    assert list(steps_of(answers(KILLED, KILLED, events={0: [measured(0)]}))) == []


ENDS = st.lists(st.sampled_from(KINDS), min_size=2, max_size=8)
WHYS = st.sampled_from(["", "hang", "failed", "deadline"])


@given(ENDS, WHYS, st.randoms(use_true_random=False))
def test_which_number_a_rank_has_changes_only_the_number_that_is_named(
    ends: list[tuple[str, str, str]], why: str, rng: random.Random
) -> None:
    order = list(range(len(ends)))
    rng.shuffle(order)
    one, other = classify(answers(*ends), why), classify(answers(*(ends[old] for old in order)), why)
    assert one.outcome is other.outcome
    assert {order[new] for new in other.culprits} == set(one.culprits)


@given(ENDS, WHYS)
def test_nobody_is_named_who_only_waited_or_was_through(ends: list[tuple[str, str, str]], why: str) -> None:
    verdict = classify(answers(*ends), why)
    assert not {ends[rank] for rank in verdict.culprits} & {WAITED, LOST, DONE}
    assert (verdict.outcome is Outcome.OK) == (verdict.problem == "")


@given(ENDS)
def test_whoever_died_or_raised_is_the_cause_however_the_trial_was_ended(ends: list[tuple[str, str, str]]) -> None:
    for kind in (CRASHED, RAISED):
        if kind in ends:
            for why in ("hang", "failed", "deadline"):
                assert set(classify(answers(*ends), why).culprits) == {r for r, end in enumerate(ends) if end == kind}
            return


def test_a_group_is_made_when_its_slowest_rank_is_through_the_first_collective() -> None:
    events = {r: [{"first_wrong": 0, "connect_us": us}] for r, us in enumerate((1000.0, 2500.0))}
    assert slowest_connect_us(answers(DONE, DONE, events=events)) == 2500.0
    assert isinstance(slowest_connect_us(answers(DONE, STUCK, events={0: events[0]})), Gap)


@pytest.mark.parametrize(
    ("ends", "why", "place"),
    [
        ((STUCK, WAITED), "hang", "start"),
        ((("stuck", "timed 2/2", ""), ("timeout", "timed 2/2", "RuntimeError: timed out")), "hang", "all_gather"),
        ((("stuck", "timed 1/2", ""), ("timeout", "timed 2/2", "RuntimeError: timed out")), "hang", "all_reduce"),
        ((("signal", "timed 2/2", "died by SIGSEGV"), LOST), "", "all_gather"),
        ((RAISED, KILLED), "", "start"),
        ((DONE, DONE), "", ""),
    ],
)
def test_a_failed_trial_says_whether_it_came_to_time_a_collective_and_which(
    ends: tuple[tuple[str, str, str], ...], why: str, place: str
) -> None:
    measures = tuple(Measure(each, 8, 0.1, 5, 9) for each in (Collective.ALL_REDUCE, Collective.ALL_GATHER))
    assignment = Assignment(
        label="1", rank=0, local_rank=0, world_size=2, backend=Backend("gloo", "", "gloo"), gpus=RankGpus(()),
        store=StorePlace(""), limits=StageLimits(1.0, 1.0, 1.0, 1.0, False), measures=measures,
    )  # fmt: skip
    assert trial_result(DEFAULT_CANDIDATE, assignment, answers(*ends), why, 1.0).failed_in == place
