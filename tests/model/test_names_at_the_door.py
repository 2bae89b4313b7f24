"""Text from outside never acts: names are checked where they enter, half characters are replaced, sizes are bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from preflight.errors import MalformedInput
from preflight.model.codec import decode, encode
from preflight.model.input_limits import BASELINE, POLICY, REPORT, InputLimit, parse_json
from preflight.model.saved_report import load_report
from preflight.model.toml import read_toml
from preflight.model.trial import RankEnd
from preflight.search.settings.environment import why_torch_would_end
from tests.show.judged import accepted

SMALL = InputLimit("report", 100, 10, 3)


def document() -> dict[str, Any]:
    return encode(accepted())


@pytest.mark.parametrize("key", ["env", "gpu_env", "timeout_env"])
@pytest.mark.parametrize("name", ["x;touch /tmp/y;z", "A B", "", "1X", "$(id)", "A\n"])
def test_a_name_that_a_shell_would_run_is_refused(key: str, name: str) -> None:
    hostile = document()
    hostile["advice"][key] = {name: "1"}
    with pytest.raises(MalformedInput, match="is no name of a variable"):
        load_report(json.dumps(hostile))


@pytest.mark.parametrize("key", ["env", "timeout_env"])
def test_a_value_that_would_act_on_a_terminal_is_refused(key: str) -> None:
    hostile = document()
    hostile["advice"][key] = {"A": "1\x1b]0;title\x07"}
    with pytest.raises(MalformedInput, match="control characters"):
        load_report(json.dumps(hostile))


def test_a_number_that_no_machine_has_is_refused() -> None:
    with pytest.raises(MalformedInput, match="64 bits"):
        decode(RankEnd, encode(RankEnd(0, "error", "init", "x")) | {"rank": 10**400})


def test_a_key_of_very_many_parts_is_refused_before_it_is_read() -> None:
    with pytest.raises(MalformedInput, match="more than 64 parts"):
        read_toml("a" + ".a" * 50_000 + "=1", "policy.toml")
    assert read_toml('a.b = "1.5.6"', "policy.toml") == {"a": {"b": "1.5.6"}}


@pytest.mark.parametrize("host", ["n[1-999]", "a,b", "a b", "a\x1b[31m", "$(id)"])
def test_a_host_that_a_hostlist_would_expand_is_refused(host: str) -> None:
    hostile = document()
    hostile["nodes"][0]["host"] = host
    with pytest.raises(MalformedInput, match="is no host name"):
        load_report(json.dumps(hostile))


def test_half_a_character_is_replaced_where_it_enters_and_bytes_that_are_no_utf_8_stay() -> None:
    end = RankEnd(0, "error", "init", "x")
    found = decode(RankEnd, encode(end) | {"detail": "half \ud800, byte \udcff, emoji \U0001f600"})
    assert found.detail == "half \ufffd, byte \udcff, emoji \U0001f600"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" + "1," * 60 + "1]", "larger than 0 KiB"),
        ("[1,2,3,4,5,6,7,8,9,10,11,12]", "more than 10 values"),
        ("[[[[1]]]]", "nested too deeply"),
        ("[" * 9, "not JSON"),
        ("9" * 5000, "larger"),
    ],
)
def test_what_costs_too_much_is_one_error(text: str, why: str) -> None:
    with pytest.raises(MalformedInput, match=why):
        parse_json(text, SMALL, "x.json")


def test_what_is_within_the_limits_is_read() -> None:
    assert parse_json('{"a": [1, {"b": "[[[["}]}', SMALL, "x.json") == {"a": [1, {"b": "[[[["}]}


@pytest.mark.parametrize("limit", [REPORT, BASELINE, POLICY])
def test_sixty_megabytes_of_empty_lists_are_refused_before_they_are_parsed(limit: InputLimit) -> None:
    with pytest.raises(MalformedInput, match=r"larger than|values, which no"):
        parse_json("[" + "[]," * (limit.most_values + 1) + "[]]", limit, "x.json")


def test_a_number_of_5000_digits_in_a_policy_is_our_error() -> None:
    with pytest.raises(MalformedInput, match="no TOML"):
        read_toml(f"[expect]\ngpu_count = {'9' * 5000}\n", "p.toml")


@pytest.mark.parametrize(("value", "is_told"), [("garbage", True), ("", True), ("detail", False), ("OFF", False)])
def test_a_variable_that_ends_torch_is_named(value: str, is_told: bool) -> None:
    why = why_torch_would_end({"TORCH_DISTRIBUTED_DEBUG": value})
    assert ("TORCH_DISTRIBUTED_DEBUG" in why and "unset it" in why) is is_told
    assert why_torch_would_end({}) == ""
