"""How long NCCL retries, from its own variables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.timeout.timings import ib_retries_s, nccl_report_s, socket_retries_s

NAMES = ("NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "NCCL_SOCKET_RETRY_CNT", "NCCL_SOCKET_RETRY_SLEEP_MSEC")


def test_by_default_sockets_take_60_s_and_infiniband_30() -> None:
    assert socket_retries_s(34, 100) == pytest.approx(59.5)
    assert ib_retries_s(20, 7) == pytest.approx(30.06, abs=0.01)
    assert nccl_report_s({})[0] == pytest.approx(59.5)


@pytest.mark.parametrize(("exponent", "value_s"), [(18, 7.5), (22, 120), (23, 240)])
def test_the_exponents_of_nccl_s_own_table_are_met(exponent: int, value_s: float) -> None:
    assert ib_retries_s(exponent, 7) == pytest.approx(value_s, rel=0.01)


def test_a_longer_retry_on_infiniband_counts() -> None:
    assert nccl_report_s({"NCCL_IB_TIMEOUT": "23"})[0] == pytest.approx(240.5, abs=0.1)


@pytest.mark.parametrize("value", ["0", "32", "true"])
def test_retries_without_end_are_said_and_not_waited_for(value: str) -> None:
    seconds, why = nccl_report_s({"NCCL_IB_TIMEOUT": value})
    assert seconds == pytest.approx(59.5)
    assert "for ever" in why


@given(st.integers(1, 30), st.integers(0, 9), st.integers(0, 1000), st.integers(0, 10**6))
def test_more_retries_never_take_less(exponent: int, retries: int, count: int, sleep_ms: int) -> None:
    assert ib_retries_s(exponent + 1, retries) >= ib_retries_s(exponent, retries)
    assert ib_retries_s(exponent, retries + 1) >= ib_retries_s(exponent, retries)
    assert socket_retries_s(count + 1, sleep_ms) >= socket_retries_s(count, sleep_ms)
    assert socket_retries_s(count, sleep_ms + 1) >= socket_retries_s(count, sleep_ms)


@given(st.dictionaries(st.sampled_from(NAMES), st.one_of(st.text(max_size=8), st.integers().map(str))))
def test_any_setting_gives_a_time(settings: dict[str, str]) -> None:
    seconds, why = nccl_report_s(settings)
    assert 0 <= seconds < 1e9
    assert why
