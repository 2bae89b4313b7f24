"""What is typed of a job is read as meant, or refused in one line; nothing else ever happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UsageError
from preflight.model.job import ParamCount
from preflight.model.parsing import SHOWN, parse_duration_s
from preflight.timeout.job_text import (
    is_upper_bound,
    parse_count,
    parse_lora_share,
    parse_params,
)

NOTHING = [
    "",
    " ",
    "0",
    "-1",
    "nan",
    "inf",
    "1e30",
    "10^30",
    "1" + "0" * 30,
    "\u0667",
    "\uff17B",
    "7X",
    "B",
    "7 B B",
    "\0",
    "-7B",
]
PARSERS: list[Callable[[str], object]] = [
    parse_params, parse_lora_share, lambda text: parse_count(text, "--seq-len", 10**6),
    lambda text: parse_duration_s(text, "--eval"),
]  # fmt: skip
ALMOST = st.text(st.sampled_from("0123456789.xXkKmMbBtThHsS%/-+eE \u00b2\u0663"), max_size=12)


@pytest.mark.parametrize(("text", "total", "active"), [
    ("7B", 7 * 10**9, 7 * 10**9), ("1.5b", 15 * 10**8, 15 * 10**8), ("500M", 5 * 10**8, 5 * 10**8),
    ("8x7B", 56 * 10**9, 56 * 10**9), ("47B/13B", 47 * 10**9, 13 * 10**9), (" 1T ", 10**12, 10**12),
    ("8x7B/13B", 56 * 10**9, 13 * 10**9),
])  # fmt: skip
def test_sizes_of_models_are_read(text: str, total: int, active: int) -> None:
    assert parse_params(text) == ParamCount(total, active)


def test_only_a_size_by_experts_is_an_upper_bound() -> None:
    assert [is_upper_bound(text) for text in ("8x7B", "8X7B/13B", "47B/13B", "7B")] == [True, True, False, False]


@pytest.mark.parametrize(("text", "value_s"), [
    ("90s", 90), ("30m", 1800), ("30min", 1800), ("1h30m", 5400), ("1.5h", 5400), ("45", 45), ("2h1m1s", 7261),
    ("0.5", 0.5),
])  # fmt: skip
def test_durations_are_read(text: str, value_s: float) -> None:
    assert parse_duration_s(text, "--eval") == value_s


def test_a_share_is_read_as_peft_prints_it_and_with_its_sign_only() -> None:
    assert parse_lora_share("0.5%") == 0.005
    with pytest.raises(UsageError, match=r"0\.5%"):
        parse_lora_share("0.5")
    with pytest.raises(UsageError, match="with %"):
        parse_lora_share("r16")


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("text", NOTHING)
def test_nonsense_is_refused_with_a_line_that_shows_it(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert str(caught.value).startswith("--")
    assert len(str(caught.value)) < 200
    assert (f" {text}: " in str(caught.value)) == (len(text) <= SHOWN)


@pytest.mark.parametrize("text", ["8d", "169h", "604801"])
def test_a_time_of_more_than_a_week_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration_s(text, "--current")


@pytest.mark.parametrize("text", ["13B/47B", "7B/", "/7B", "1T/2T/3T", "0x7B", "7", "101T"])
def test_sizes_that_cant_be_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_params(text)


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.one_of(st.text(), ALMOST))
def test_any_text_gives_a_positive_answer_or_a_usage_error(parse: Callable[[str], object], text: str) -> None:
    try:
        answer = parse(text)
    except UsageError:
        return
    values = (answer.total, answer.active) if isinstance(answer, ParamCount) else (answer,)
    assert all(isinstance(value, (int, float)) and value > 0 for value in values)


@given(st.integers(1, 999), st.sampled_from("KMBT"))
def test_a_whole_size_is_read_exactly(number: int, unit: str) -> None:
    scale = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}[unit]
    if 1000 <= number * scale <= 10**14:
        assert parse_params(f"{number}{unit}").total == number * scale


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_hours_minutes_and_seconds_add_up(hours: int, minutes: int, seconds: int) -> None:
    total = 3600 * hours + 60 * minutes + seconds
    if total:
        assert parse_duration_s(f"{hours}h{minutes}m{seconds}s", "--eval") == total
