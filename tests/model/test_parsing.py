"""What people type and what strtoll reads, at its edges; tests/timeout has the options that take it."""

from __future__ import annotations

import pytest

from preflight.errors import UsageError
from preflight.model.parsing import LONGEST_S, SHOWN, parse_duration_s, parsed_integer, version_tuple, wrong


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("90s", 90), ("30m", 1800), ("2min", 120), ("1h", 3600), ("1h30m", 5400), (" 5m ", 300),
     ("1H2M3S", 3723), (str(LONGEST_S), LONGEST_S)],
)  # fmt: skip
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration_s(text, "--deadline") == seconds


@pytest.mark.parametrize("text", ["", " ", "0", "0s", "-1", "5 m", "m", "1d", "inf", str(LONGEST_S + 1), "1h 30m"])
def test_what_is_no_duration_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"--deadline .*(not a time|above 0)"):
        parse_duration_s(text, "--deadline")


def test_what_was_typed_is_shown_up_to_a_limit() -> None:
    assert str(wrong("--x", "y" * SHOWN, "why")) == f"--x {'y' * SHOWN}: why"
    assert str(wrong("--x", "y" * (SHOWN + 1), "why")) == f"--x {'y' * SHOWN}...: why"


@pytest.mark.parametrize(
    ("text", "read"),
    [("7", (7, "")), (" -12x", (-12, "x")), ("0x1F", (31, "")), ("017", (15, "")), ("08", (0, "8")),
     ("yes", (0, "yes")), ("", (0, ""))],
)  # fmt: skip
def test_an_integer_is_read_as_strtoll_reads_it(text: str, read: tuple[int, str]) -> None:
    assert parsed_integer(text) == read


@pytest.mark.parametrize(
    ("text", "version"), [("2.13.0+cpu", (2, 13, 0)), ("v535.54", (535, 54)), ("none", ()), ("12", (12,))]
)
def test_a_version_is_the_numbers_in_front(text: str, version: tuple[int, ...]) -> None:
    assert version_tuple(text) == version
