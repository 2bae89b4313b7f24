"""What `quick` takes on eight real GPUs with broken pairs: computed from the limits of its stages, not measured.

Each trial is taken to need 5 s for the CUDA contexts (docs/dev/nccl-facts.md has 1 to 5), 5 s for NCCL's start and 5 s
for the measurements. Before the trials torch is imported and all pairs are tested.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.model.trial import DEFAULT, Candidate, Outcome, TrialResult
from preflight.search.profiles import stage_limits
from preflight.search.settings.candidate_plan import conservative_settings
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.search.settings.node_view import view_of
from preflight.search.settings.search import next_step
from preflight.search.settings.steps import Known, Next, Repeat, Try
from preflight.trial.rank.gpu_test_process import STEP_S
from tests.search.searching import play
from tests.simnccl.interpreter import interpret
from tests.simnccl.simnccl import parse
from tests.topology import pcie_node

DEADLINE_S = 180.0  # of `quick`
CONTEXTS_S, START_S, MEASURE_S = 5.0, 5.0, 5.0
TORCH_S, ALL_PAIRS_S = 20.0, 6.0  # search/gpus/gpu_tests.py
SETTINGS = conservative_settings(view_of(pcie_node(("PIX", "SYS"), 8), ()))[0]
FAULTS = {"loses": ("hang", Outcome.HANG), "changes": ("corrupt", Outcome.WRONG_DATA)}


@pytest.mark.parametrize("hanging_pairs", [0, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_pair_of_eight_gpus_is_cured_and_proved_before_the_deadline(fault: str, hanging_pairs: int) -> None:
    words, outcome = FAULTS[fault]
    rules = parse(f"{words}:unless=NCCL_P2P_DISABLE=1")
    first_s = stage_limits("nccl", None).first_s
    spent_s = TORCH_S + ALL_PAIRS_S + hanging_pairs * STEP_S

    def run(candidate: Candidate) -> TrialResult:
        nonlocal spent_s
        result = interpret(rules, candidate)
        took_s = CONTEXTS_S + START_S + (first_s if result.outcome is Outcome.HANG else MEASURE_S)
        spent_s += took_s
        return replace(result, duration_s=took_s)

    def following(known: Known) -> Next:
        now = replace(known, left_s=DEADLINE_S - spent_s)
        return next_step((DEFAULT_CANDIDATE,), False, (), now, SETTINGS, (), runs_each=2)

    def tried(step: Next) -> TrialResult:
        assert isinstance(step, (Try, Repeat))
        return run(step.candidate)

    done = play(following, tried, Known(broken_pairs=((2, 3),)))
    assert done.results[0].outcome is outcome
    assert done.best == {"NCCL_P2P_DISABLE": "1"}
    assert len(done.results) <= 4, done.names
    ends = [(each.candidate == DEFAULT, each.outcome is Outcome.OK) for each in done.control.turns(done.control.chosen)]
    assert sorted(ends) == [(False, True)] * 2 + [(True, False)] * 2, "two runs of each, as `quick` promises"
    assert spent_s <= DEADLINE_S, f"{spent_s:.0f} s"
