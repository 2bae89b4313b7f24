from __future__ import annotations

from dataclasses import replace

from preflight.judge.phases import RunProgress, phases_of
from preflight.model.report import RunPhaseEnd
from preflight.model.run_spec import Duel
from preflight.model.trial import Outcome
from tests.node_facts import trial

WHOLE = RunProgress(True, True, True, True, "", (trial(),))
SKIPPED = trial("as-is", Outcome.SKIPPED, problem="0 s were left before the deadline")


def ends(run: RunProgress) -> dict[str, str]:
    return {phase.name: phase.end.value for phase in phases_of(run)}


def details(run: RunProgress) -> dict[str, str]:
    return {phase.name: phase.detail for phase in phases_of(run)}


def test_a_run_that_came_to_its_end_completed_every_part() -> None:
    assert {phase.end for phase in phases_of(WHOLE)} == {RunPhaseEnd.COMPLETED}
    assert details(WHOLE)["trials"] == "1 tried"


def test_nothing_is_reached_behind_a_probe_that_was_interrupted() -> None:
    run = RunProgress(False, False, False, False, "stopped by SIGINT while the node was probed")
    assert ends(run) == {
        "probe": "partial", "start of the ranks": "not_reached", "trials": "not_reached", "judging": "not_reached",
    }  # fmt: skip
    assert details(run)["probe"] == "stopped by SIGINT while the node was probed"


def test_what_keeps_the_ranks_from_starting_is_why_nothing_was_tried_and_judging_goes_on() -> None:
    run = RunProgress(True, False, False, False, "torch is not installed")
    assert ends(run) == {
        "probe": "completed", "start of the ranks": "not_reached", "trials": "not_reached", "judging": "completed",
    }  # fmt: skip
    assert details(run)["start of the ranks"] == "torch is not installed"


def test_ranks_that_died_while_starting_are_a_start_that_is_partial() -> None:
    run = RunProgress(True, True, False, False, "torchrun ended with exit code 1")
    assert (ends(run)["start of the ranks"], ends(run)["trials"]) == ("partial", "not_reached")


def test_a_run_that_was_cut_in_a_trial_says_how_many_were_tried_and_what_cut_it() -> None:
    run = replace(WHOLE, through=False, problem="the deadline came before the run finished, at no-p2p: init")
    assert ends(run)["trials"] == "partial"
    assert details(run)["trials"] == "the deadline came before the run finished, at no-p2p: init (1 tried)"
    assert details(replace(run, trials=()))["trials"].endswith(" (no trial was completed)")


def test_sizes_that_memory_left_out_make_the_trials_partial() -> None:
    run = replace(WHOLE, without_room="nothing of 1 MiB and more: each rank may take 2 MiB of the free memory")
    assert details(run)["trials"] == f"1 tried; {run.without_room}"
    assert ends(run)["trials"] == "partial"


def test_candidates_for_which_no_time_was_left_make_the_trials_partial() -> None:
    run = replace(WHOLE, trials=(trial(), SKIPPED))
    assert details(run)["trials"] == "1 tried; not as-is: 0 s were left before the deadline"
    assert ends(run)["trials"] == "partial"


def test_a_comparison_that_was_cut_is_a_part_of_its_own() -> None:
    assert ends(replace(WHOLE, duels=(Duel("no-nvls", (), ""),)))["comparisons"] == "completed"
    cut = replace(WHOLE, duels=(Duel("no-nvls", (), "1 s were left before the deadline"),))
    assert ends(cut)["comparisons"] == "partial"
    assert details(cut)["comparisons"] == "no-nvls: 1 s were left before the deadline"


def test_a_judge_that_failed_or_was_not_reached_is_named() -> None:
    assert ends(replace(WHOLE, judged="a defect in preflight: KeyError"))["judging"] == "partial"
    assert ends(replace(WHOLE, judged=None, problem="killed"))["judging"] == "not_reached"
