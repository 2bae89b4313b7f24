"""What looks like a secret stands in no report, page or capture."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from preflight.facts.process import reported_environment
from preflight.system import secrets
from preflight.system.files import encoded

SECRET = 'hf_"AbCdEf0123456789'


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCH_HUB_TOKEN", SECRET)
    secrets._secrets.cache_clear()
    yield
    secrets._secrets.cache_clear()


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "NCCL_API_KEY", "TORCH_SECRET", "db_password", "AWS_CREDENTIALS", "APPKEY"]
)
def test_a_name_that_says_so_is_a_secret(name: str) -> None:
    assert secrets.is_secret(name)


@pytest.mark.parametrize("name", ["NCCL_IB_PKEY", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "PATH"])
def test_a_setting_is_none(name: str) -> None:
    assert not secrets.is_secret(name)


def test_the_environment_in_a_report_has_names_and_no_secrets() -> None:
    given = {"TORCH_HUB_TOKEN": "x", "NCCL_IB_PKEY": "1", "TORCH_HOME": "https://me:pass@host/x"}
    found = {each.name: each.value for each in reported_environment(given)}
    assert found == {"TORCH_HUB_TOKEN": "(hidden)", "NCCL_IB_PKEY": "1", "TORCH_HOME": "https://(hidden)@host/x"}


def test_a_value_that_turns_up_in_a_text_is_hidden_there_too() -> None:
    text = json.dumps({"problem": f"401 for {SECRET}"}) + f" page: {SECRET} http://u:p@h/"
    written = encoded(text).decode()
    assert "AbCdEf" not in written
    assert written == '{"problem": "401 for (hidden)"} page: (hidden) http://(hidden)@h/'
