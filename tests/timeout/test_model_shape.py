from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.model.fit import ModelShape
from preflight.timeout.job_text import parse_model_shape

LLAMA = {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 11008, "vocab_size": 32000}
GPT2 = {"n_embd": 768, "n_layer": 12, "n_inner": None, "vocab_size": 50257}


def parsed(document: Any) -> ModelShape:
    return parse_model_shape(json.dumps(document), "config.json")


def test_llama_and_gpt2_name_the_same_things_differently() -> None:
    assert parsed(LLAMA) == ModelShape(4096, 32, 11008, 32000)
    assert parsed(GPT2) == ModelShape(768, 12, 3072, 50257)


def test_of_a_model_that_also_sees_the_language_model_counts() -> None:
    assert parsed({"hidden_size": 1, "vision_config": {"hidden_size": 2}, "text_config": LLAMA}) == parsed(LLAMA)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "not JSON"),
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("{}", "there is no hidden_size or n_embd"),
        (json.dumps({**LLAMA, "hidden_size": "4096"}), "hidden_size is '4096', not a whole number"),
        (json.dumps({**LLAMA, "hidden_size": True}), "hidden_size is 'True'"),
        (json.dumps({**LLAMA, "hidden_size": 0}), "from 1 to 1048576"),
        (json.dumps({**LLAMA, "num_hidden_layers": -1}), "num_hidden_layers is '-1'"),
        (json.dumps({**LLAMA, "vocab_size": 10**30}), "vocab_size is"),
        (json.dumps({**LLAMA, "vocab_size": 1.5}), "vocab_size is '1.5'"),
        ('{"hidden_size": NaN}', "hidden_size is 'nan'"),
        (json.dumps({**LLAMA, "vocab_size": ["x" * 500]}), "vocab_size is"),
        (" " * (5 << 20), "larger than 4 MiB"),
    ],
)
def test_what_is_no_config_is_refused_in_one_short_line(text: str, says: str) -> None:
    with pytest.raises(MalformedInput) as raised:
        parse_model_shape(text, "config.json")
    assert str(raised.value).startswith("config.json: ")
    assert says in str(raised.value)
    assert len(str(raised.value)) < 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*LLAMA, "text_config"]), inner),
    max_leaves=10,
)


@given(JSON | st.fixed_dictionaries({}, optional=dict.fromkeys([*LLAMA, *GPT2, "text_config"], JSON)))
def test_any_json_gives_a_bounded_shape_or_our_error(document: Any) -> None:
    try:
        shape = parsed(document)
    except MalformedInput:
        return
    assert 0 < shape.hidden_size <= 1 << 20
    assert 0 < shape.layers <= 10_000
    assert 0 < shape.intermediate_size <= 1 << 24
    assert 0 < shape.vocab_size <= 1 << 24


@given(st.text(max_size=200))
def test_any_text_gives_a_shape_or_our_error(text: str) -> None:
    with pytest.raises(MalformedInput):
        parse_model_shape(text, "x")
