"""What is asked of a check is one record: typed, passed on, and asked by the phases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.check.request import BenchRequest, Request
from preflight.cli.program import real_command
from preflight.errors import UsageError
from preflight.model.collective import Collective
from preflight.model.profile import ALL_TESTS, GpuTests, Profile

WORDS = st.text("abcdefgh0123456789,:=./- ", min_size=1, max_size=12).filter(lambda text: text.strip() == text)
ASKED: dict[str, st.SearchStrategy[Any]] = {
    "gpus": WORDS, "nproc": st.integers(1, 64), "profile": st.sampled_from(Profile),
    "deadline": st.integers(1, 86_400_000).map(lambda ms: ms / 1000),
    "report": WORDS, "also": st.lists(WORDS, min_size=1, max_size=3), "strict": st.booleans(),
    "stage_limit": st.integers(1, 600).map(float), "nnodes": st.integers(1, 64), "rdzv_endpoint": WORDS,
    "skip": st.lists(WORDS, min_size=1, max_size=3), "tests": WORDS, "starts": WORDS,
    "starts_if_unknown": st.booleans(),
}  # fmt: skip


@given(st.fixed_dictionaries({}, optional=ASKED))
def test_its_command_line_asks_for_the_same(asked: dict[str, Any]) -> None:
    request = Request(**asked)
    read = real_command("check").make_context("check", request.arguments())
    given: dict[str, Any] = {name: None if value == () else value for name, value in read.params.items()}
    assert Request(**given) == request


def test_nothing_asked_is_no_argument() -> None:
    assert Request().arguments() == []


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"minutes": 10.0}, "--minutes 10"), ({"tests": "pears"}, "--tests pears"), ({"sizes": "9"}, "--sizes"),
        ({"collectives": "all_reduces"}, "--collectives all_reduces"), ({"skip": ["memlok"]}, "--skip memlok"),
        ({"sysroot": "/a", "machine": "/b"}, "one machine at a time"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_named(asked: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Request(**asked).must_make_sense({"memlock"})


def test_what_was_left_out_is_told_as_it_was_written() -> None:
    request = Request(tests="gpus", sizes="1K : 4K", skip=["pids,memlock", "nofile"])
    assert request.narrowed == "--tests gpus --sizes 1K:4K --skip memlock,nofile,pids"
    assert request.wanted_tests == {GpuTests.GPUS} and request.skipped == {"memlock", "nofile", "pids"}
    assert Request().wanted_tests == ALL_TESTS and Request().narrowed == ""


def test_a_bench_tries_the_defaults_and_nothing_beside_the_collectives() -> None:
    asked = BenchRequest(collectives="broadcast", sizes="1K")
    assert (asked.default_only, asked.wanted_tests, asked.narrowed) == (True, frozenset(), "")
    assert asked.wanted_collectives == (Collective.BROADCAST,) and not Request().default_only


def test_a_run_ends_when_its_profile_does_unless_it_is_told_otherwise() -> None:
    assert [Request(profile=each).until_s for each in Profile] == [180, 900, 3600]
    assert Request(profile=Profile.BURN, minutes=60.0).until_s > 3600
    assert Request(deadline=20.0).until_s == 20
