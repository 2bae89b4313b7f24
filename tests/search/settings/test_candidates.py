"""Which settings are worth a trial, and why others are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.facts import Gap, Netif, NetifKind
from preflight.model.trial import AS_IS, DEFAULT, Scope
from preflight.search.settings.candidates import gloo_candidates, nccl_candidates
from tests.node_facts import LO, netif

NETIFS = st.builds(
    netif,
    st.text(min_size=1, max_size=15),
    kind=st.sampled_from(NetifKind),
    is_up=st.booleans(),
    has_carrier=st.booleans() | st.just(Gap("down")),
    addresses=st.sampled_from([(), ("10.0.0.1",), ("fe80::1",), Gap("unreadable")]),
)


def names(*netifs: Netif, inherited: tuple[tuple[str, str], ...] = ()) -> list[str]:
    return [candidate.name for candidate in gloo_candidates(netifs, inherited)[0]]


def test_the_default_comes_first_and_each_usable_interface_by_name() -> None:
    assert names(LO, netif("eth0"), netif("eth1")) == [DEFAULT, "netif eth0", "netif eth1"]


def test_an_interface_is_given_to_gloo_by_its_name_and_to_nccl_as_an_exact_match() -> None:
    candidate = gloo_candidates((netif("eth1"),), ())[0][1]
    assert candidate.env == (("GLOO_SOCKET_IFNAME", "eth1"), ("NCCL_SOCKET_IFNAME", "=eth1"))
    assert candidate.scope is Scope.ONE_NODE


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        (LO, "loopback"),
        (netif(is_up=False), "down"),
        (netif(has_carrier=False), "no carrier"),
        (netif("a,b"), "comma"),
        (netif("a\ufffdb"), "undecodable"),
        (netif(addresses=()), "no address"),
    ],
)
def test_an_interface_that_cannot_work_is_left_out_with_the_reason(left_out: Netif, reason: str) -> None:
    candidates, left = gloo_candidates((left_out,), ())
    assert [candidate.name for candidate in candidates] == [DEFAULT]
    assert reason in left[0].reason
    assert left_out.name in left[0].candidate


def test_what_could_not_be_read_of_an_interface_does_not_exclude_it() -> None:
    assert names(netif(has_carrier=Gap("EINVAL"), addresses=Gap("unreadable"))) == [DEFAULT, "netif eth0"]


@pytest.mark.parametrize("name", ["`id>y`", "$(touch${IFS}x)", "a'b", 'a"b', "-n"])
def test_any_name_that_linux_allows_is_tried_as_it_is(name: str) -> None:
    assert gloo_candidates((netif(name),), ())[0][1].env[0] == ("GLOO_SOCKET_IFNAME", name)


def test_inherited_settings_are_tried_where_the_backend_reads_them() -> None:
    gloo = (("GLOO_SOCKET_IFNAME", "eth9"),)
    assert names(inherited=gloo) == [DEFAULT, AS_IS]
    candidates, left_out = nccl_candidates((("NCCL_ALGO", "Ring"), ("NCCL_DEBUG", "INFO")))
    assert [candidate.name for candidate in candidates] == [DEFAULT, AS_IS]
    assert "NCCL_ALGO=Ring" in candidates[1].reason
    assert "NCCL_DEBUG" not in candidates[1].reason
    assert left_out == ()


def test_inherited_settings_that_the_backend_does_not_read_are_left_out_by_name() -> None:
    candidates, left_out = gloo_candidates((), (("NCCL_ALGO", "Ring"),))
    assert [candidate.name for candidate in candidates] == [DEFAULT]
    assert "NCCL_ALGO" in left_out[0].reason


@given(st.lists(NETIFS, max_size=6, unique_by=lambda each: each.name))
def test_every_interface_is_either_tried_or_left_out_with_a_reason(netifs: list[Netif]) -> None:
    candidates, left_out = gloo_candidates(netifs, ())
    tried = [candidate.name for candidate in candidates[1:]]
    assert sorted([*tried, *(each.candidate for each in left_out)]) == sorted(f"netif {each.name}" for each in netifs)
    assert all(each.reason for each in left_out)
    assert not any(f"netif {each.name}" in tried for each in netifs if each.kind is NetifKind.LOOPBACK)
