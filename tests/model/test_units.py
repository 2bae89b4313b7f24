"""Numbers as people read them, at the edges where the unit or the number of digits changes."""

from __future__ import annotations

import pytest

from preflight.model.units import (
    count_text,
    counted,
    decimal_text,
    duration_text,
    percent_text,
    rate_text,
    seconds_text,
    size_text,
    three_digits,
    time_text,
)


@pytest.mark.parametrize(
    ("duration_s", "text"), [(0.4, "0 s"), (119.4, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h")]
)
def test_a_duration_is_in_the_unit_that_people_say_it_in(duration_s: float, text: str) -> None:
    assert duration_text(duration_s) == text


@pytest.mark.parametrize(
    ("value_s", "text"),
    [(0, "0.0 s"), (0.03, "0.03 s"), (0.94, "0.9 s"), (0.95, "0.9 s"), (2.44, "2.4 s"), (9.94, "9.9 s"), (9.95, "10 s"),
     (4300, "4,300 s")],
)  # fmt: skip
def test_seconds_have_as_many_digits_as_matter(value_s: float, text: str) -> None:
    assert seconds_text(value_s) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (32 << 20, "32 MiB"), (1 << 50, "1 PiB"),
     (1 << 62, "4096 PiB")],
)  # fmt: skip
def test_a_size_is_in_binary_units(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(
    ("time_us", "text"), [(8.125, "8.12 µs"), (999.4, "999 µs"), (999.6, "1.00 ms"), (999_600, "1.00 s")]
)
def test_a_time_changes_its_unit_before_it_has_four_digits(time_us: float, text: str) -> None:
    assert time_text(time_us) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00"), (0.004, "0.004"), (0.0099, "0.01"), (1.314, "1.31"), (9.994, "9.99"), (9.996, "10.0"),
     (99.94, "99.9"), (99.96, "100"), (1234, "1234")],
)  # fmt: skip
def test_three_digits_are_three(value: float, text: str) -> None:
    assert three_digits(value) == text
    assert rate_text(value) == f"{text} GB/s"


def test_counts_and_disks_are_scaled_by_thousands() -> None:
    assert [count_text(each) for each in (999, 999_500, 7 * 10**9)] == ["999", "1.00 M", "7.00 B"]
    assert [decimal_text(each) for each in (12, 700e6, 21e9)] == ["12 B", "700 MB", "21.0 GB"]


def test_a_share_has_its_sign() -> None:
    assert [percent_text(share) for share in (0.123, -0.05)] == ["+12.3%", "-5.0%"]


def test_one_is_one_and_all_else_are_many() -> None:
    assert [counted(count, "node") for count in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
