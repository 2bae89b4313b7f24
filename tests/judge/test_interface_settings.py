from __future__ import annotations

import pytest

from preflight.judge.interface_settings import gloo_remark, nccl_matches, nccl_remark

NAMES = ("lo", "eth0", "eth1", "eth10", "docker0")


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("eth1", ("eth1", "eth10")),
        ("=eth1", ("eth1",)),
        ("=eth0,eth1", ("eth0", "eth1")),
        ("^docker,lo", ("eth0", "eth1", "eth10")),
        ("^=eth1", ("lo", "eth0", "eth10", "docker0")),
        ("bond", ()),
        ("=eth", ()),
    ],
)
def test_nccls_grammar_is_prefix_exact_and_exclusion(value: str, left: tuple[str, ...]) -> None:
    assert nccl_matches(value, NAMES) == left


@pytest.mark.parametrize("value", ["", "eth", "=eth0", "^docker0"])
def test_an_nccl_value_that_leaves_an_interface_is_fine(value: str) -> None:
    assert nccl_remark(value, NAMES) is None


@pytest.mark.parametrize(
    ("value", "told"), [("e", "one character"), ("bond0", "no interface"), ("=eth", "no interface")]
)
def test_an_nccl_value_that_leaves_none_is_named(value: str, told: str) -> None:
    remark = nccl_remark(value, NAMES)
    assert remark is not None
    assert told in remark.problem


@pytest.mark.parametrize("value", ["", "eth0", "eth0,eth1", "lo"])
def test_gloo_takes_whole_names(value: str) -> None:
    assert gloo_remark(value, NAMES) is None


@pytest.mark.parametrize(
    ("value", "told"),
    [("=eth0", "and fails"), ("^lo", "and fails"), ("eth", "no prefixes"), ("eth0,bond0", "'bond0'")],
)
def test_gloo_fails_on_nccls_grammar_and_on_missing_names(value: str, told: str) -> None:
    remark = gloo_remark(value, NAMES)
    assert remark is not None
    assert told in remark.problem


def test_a_node_with_lo_only_still_gets_a_fix() -> None:
    remark = nccl_remark("eth0", ("lo",))
    assert remark is not None
    assert "has only lo" in remark.fix
