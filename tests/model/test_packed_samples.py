from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.model.run_spec import RankSamples
from preflight.model.samples import pack_samples, unpack_samples

TIMES = st.floats(0, 1e9, width=32)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(st.tuples(TIMES, TIMES, TIMES), max_size=60), st.integers(0, 9000), st.integers(0, 10**12))
def test_samples_come_back_through_json(times: list[tuple[float, float, float]], rank: int, wrong: int) -> None:
    barrier, call, gap = (tuple(column) for column in zip(*times, strict=True)) if times else ((), (), ())
    samples = RankSamples(rank, barrier, call, gap, wrong)
    assert unpack_samples(json.loads(json.dumps(pack_samples(samples)))) == samples


@given(ANYTHING)
def test_what_is_no_sample_is_refused_in_our_words(value: object) -> None:
    with pytest.raises(MalformedInput):
        unpack_samples(value)


@given(st.fixed_dictionaries(dict.fromkeys(("rank", "wrong_elements", "times"), ANYTHING)))
def test_an_object_of_the_right_keys_is_samples_or_refused(value: dict[str, object]) -> None:
    try:
        samples = unpack_samples(value)
    except MalformedInput:
        return
    assert len(samples.call_us) == len(samples.gap_us) == len(samples.barrier_us)


def test_a_time_that_is_no_number_is_refused() -> None:
    with pytest.raises(MalformedInput, match="no numbers"):
        unpack_samples(pack_samples(RankSamples(0, (1.0,), (float("nan"),), (1.0,), 0)))
