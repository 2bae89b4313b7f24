"""A timeout from how long an earlier run of the job was silent: never below that, and only of a run that ended well."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.model.job import Job, ParamCount
from preflight.model.job_phases import START, Phase, Silence
from preflight.model.timeout import Part, Source
from preflight.timeout.job_text import parse_run_record
from preflight.timeout.pauses import pauses
from preflight.timeout.safe_timeout import CAP_S, safe_timeout
from tests.timeout.test_safe_timeout import NOTHING

SEVEN = ParamCount(7 * 10**9, 7 * 10**9)
SECONDS = st.floats(0, 4000)
SILENCES = st.lists(
    st.builds(Silence, st.sampled_from((START, *(each.value for each in Phase))), SECONDS, SECONDS), min_size=1
)


def record(**changes: Any) -> str:
    phases = {"start": {"silent_s": 94.0, "lasted_s": 310.0}, "training": {"silent_s": 12, "lasted_s": 0}}
    return json.dumps({"ended_well": True, "host": "n1", "took_s": 900.0, "phases": phases} | changes)


@given(SILENCES)
def test_no_timeout_is_below_a_silence_or_the_length_of_a_phase_other_than_training(silences: list[Silence]) -> None:
    safe = safe_timeout(Job(silences=tuple(silences)), NOTHING)
    for each in silences:
        lasted_s = 0.0 if each.phase == Phase.TRAINING else each.lasted_s
        limit_s = safe.init_timeout_s if each.phase == START else safe.training_timeout_s
        assert limit_s >= min(CAP_S.value, max(3 * each.silent_s, lasted_s))


def test_what_a_run_showed_takes_the_place_of_what_is_assumed_of_loads_and_saves() -> None:
    assumed = {each.name for each in pauses(Job(params=SEVEN, eval_s=60.0), NOTHING)}
    silences = parse_run_record(record(), "r.json")
    found = {each.name: each for each in pauses(Job(params=SEVEN, eval_s=60.0, silences=silences), NOTHING)}
    assert assumed == {"loading the weights", "checkpoint", "evaluation"}
    assert set(found) == {"the start of the run", "training", "evaluation"}
    assert found["the start of the run"].parts == (Part.INIT,)
    assert {each.source for each in found.values()} == {Source.MEASURED, Source.GIVEN}


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        record(ended_well=False),
        record(phases={}),
        record(phases={"lunch": {"silent_s": 1, "lasted_s": 1}}),
        record(phases={"start": 4}),
        record(phases={"start": {"silent_s": "4", "lasted_s": 1}}),
        record(phases={"start": {"silent_s": -4, "lasted_s": 1}}),
    ],
)
def test_anything_but_a_record_of_a_run_that_ended_well_is_refused(text: str) -> None:
    with pytest.raises(MalformedInput, match=r"^r\.json: "):
        parse_run_record(text, "r.json")
