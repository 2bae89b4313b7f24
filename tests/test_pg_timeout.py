"""`from preflight import pg_timeout`: the timeout of the sourced .env, without torch."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight import pg_timeout
from preflight.errors import UsageError
from tests.command import OWN_PATH

NAME = "PREFLIGHT_PG_TIMEOUT_S"


def test_it_is_the_variable_s_seconds() -> None:
    assert pg_timeout({NAME: "660"}) == timedelta(seconds=660)


def test_by_default_the_variable_is_this_process_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "661")
    assert pg_timeout() == timedelta(seconds=661)


@pytest.mark.parametrize("value", [None, "", " "])
def test_without_the_variable_it_is_none_which_torch_takes_for_its_default(value: str | None) -> None:
    assert pg_timeout({} if value is None else {NAME: value}) is None


@pytest.mark.parametrize("value", ["0", "-5", "10m", "1e3", "nan", "٦٠٠", "604801", "9" * 30])
def test_anything_else_is_an_error_that_names_the_variable(value: str) -> None:
    with pytest.raises(UsageError, match=NAME):
        pg_timeout({NAME: value})


@given(st.text(max_size=20))
def test_any_value_gives_a_timeout_or_a_usage_error(value: str) -> None:
    try:
        found = pg_timeout({NAME: value})
    except UsageError:
        return
    assert found is None or timedelta(0) < found <= timedelta(days=7)


def test_importing_it_loads_neither_torch_nor_typer() -> None:
    code = "import sys; from preflight import pg_timeout; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    ran = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": OWN_PATH}, capture_output=True, text=True, check=True
    )
    assert not {"torch", "typer", "pynvml", "numpy"} & set(ran.stdout.replace("'", " ").replace(",", " ").split())
