from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.judge.nccl_settings import remarks
from preflight.model.finding import Severity
from preflight.model.nccl_variables import VARIABLES
from preflight.model.parsing import parsed_integer

INTEGERS = [each.name for each in VARIABLES if each.is_integer]


def severities(name: str, value: str) -> list[Severity]:
    return [remark.severity for remark in remarks(name, value)]


@pytest.mark.parametrize(
    ("text", "number", "rest"),
    [
        ("1", 1, ""),
        ("0x10", 16, ""),
        ("010", 8, ""),
        (" -1", -1, ""),
        ("20s", 20, "s"),
        ("true", 0, "true"),
        ("08", 0, "8"),
    ],
)
def test_integers_are_read_as_strtoll_reads_them(text: str, number: int, rest: str) -> None:
    assert parsed_integer(text) == (number, rest)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("NCCL_IB_DISABLE", "true", "does nothing"),
        ("NCCL_NVLS_ENABLE", "true", "switches it off"),
        ("NCCL_P2P_DISABLE", "yes", "does nothing"),
        ("NCCL_P2P_DISABLE", "2", "acts only on 1"),
        ("NCCL_BUFFSIZE", "4M", "read as 4"),
        ("NCCL_P2P_LEVEL", "nvl", "silently ignores it"),
        ("NCCL_NET_GDR_LEVEL", "FAR", "silently ignores it"),
        ("NCCL_IB_TIMEOUT", "0", "disables the timeout"),
        ("NCCL_IB_TIMEOUT", "32", "disables the timeout"),
        ("NCCL_IB_CUDA_SUPPORT", "1", "removed"),
        ("NCCL_PROTO", "LL128", "corrupt"),
        ("NCCL_DEBUG_FILE", "/tmp/nccl.log", "overwrite"),
        ("NCCL_TOPO_FILE", "", "topology"),
        ("NCCL_CONF_FILE", "~/nccl.conf", "not expanded"),
        ("NCCL_SOCKET_FAMILY", "ipv4", "ignores it"),
        ("NCCL_IGNORE_DISABLED_P2P", "2", "denies"),
        ("NCCL_IB_DISABLE ", "1", "blank"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "slows"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "never ends"),
        ("CUDA_LAUNCH_BLOCKING", "1", "one kernel"),
    ],
)
def test_a_setting_that_does_harm_is_a_warning_that_says_what_it_does(name: str, value: str, told: str) -> None:
    first = remarks(name, value)[0]
    assert first.severity is Severity.WARN
    assert told in first.problem


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_P2P_DISABLE", "1"),
        ("NCCL_IB_DISABLE", "1"),
        ("NCCL_SHM_DISABLE", "1"),
        ("NCCL_NVLS_ENABLE", "0"),
        ("NCCL_CUMEM_ENABLE", "0"),
        ("NCCL_NET", "Socket"),
        ("NCCL_ALGO", "Ring"),
        ("NCCL_PROTO", "^LL128"),
        ("NCCL_IB_GID_INDEX", "3"),
    ],
)
def test_a_switch_copied_from_elsewhere_is_worth_a_note_and_no_more(name: str, value: str) -> None:
    assert severities(name, value) == [Severity.INFO]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_P2P_DISABLE", "0"),
        ("NCCL_P2P_DISABLE", ""),
        ("NCCL_IB_DISABLE", "0"),
        ("NCCL_NVLS_ENABLE", "1"),
        ("NCCL_P2P_LEVEL", "NVL"),
        ("NCCL_P2P_LEVEL", "3"),
        ("NCCL_IB_TIMEOUT", "22"),
        ("NCCL_DEBUG_FILE", "/tmp/nccl.%h.%p.log"),
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_SOCKET_FAMILY", "AF_INET6"),
        ("NCCL_TOPO_FILE", "/etc/topo.xml"),
        ("TORCH_DISTRIBUTED_DEBUG", "INFO"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("NCCL_BUFFSIZE", "0x400000"),
    ],
)
def test_a_setting_that_does_what_it_says_is_left_alone(name: str, value: str) -> None:
    assert remarks(name, value) == ()


@given(st.sampled_from(INTEGERS), st.sampled_from(["true", "yes", "on", "enable", "False", "none"]))
def test_a_word_where_a_number_belongs_is_always_named(name: str, word: str) -> None:
    assert Severity.WARN in severities(name, word)


@given(st.text(), st.text())
def test_any_name_and_value_can_be_looked_at(name: str, value: str) -> None:
    for remark in remarks(name, value):
        assert remark.fix


@given(st.sampled_from(INTEGERS), st.text())
def test_any_value_of_an_integer_variable_can_be_looked_at(name: str, value: str) -> None:
    for remark in remarks(name, value):
        assert remark.problem
