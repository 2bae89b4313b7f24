"""Slurm's host lists, as `scontrol show hostnames` expands them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.trial.nodes.hostlist import expand_hosts

LISTS = {
    "n1": ("n1",),
    "n[1-3]": ("n1", "n2", "n3"),
    "gpu[01-03,7],login2": ("gpu01", "gpu02", "gpu03", "gpu7", "login2"),
    "r[1-2]n[08-09].site": ("r1n08.site", "r1n09.site", "r2n08.site", "r2n09.site"),
    "n[9-11]": ("n9", "n10", "n11"),
    "a,b,a": ("a", "b", "a"),
}


@pytest.mark.parametrize(("text", "hosts"), LISTS.items())
def test_a_host_list_expands_as_slurm_has_it(text: str, hosts: tuple[str, ...]) -> None:
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize("text", ["", ",", "n[1-3", "n1]", "n[[1]]", "n[3-1]", "n[a-b]", "n[]", "a b", "n[1-99999999]"])
def test_what_is_no_host_list_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        expand_hosts(text)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="n[]-,0123456789 x.", max_size=40) | st.text(max_size=30))
def test_any_text_is_a_list_of_hosts_or_refused(text: str) -> None:
    try:
        hosts = expand_hosts(text)
    except MalformedInput as error:
        assert str(error)
    else:
        assert hosts
        assert all(host and not set(host) & set("[],") for host in hosts)


@given(st.lists(st.tuples(st.from_regex(r"[a-z]{1,4}", fullmatch=True), st.integers(0, 99), st.integers(0, 20))))
def test_ranges_give_as_many_hosts_as_they_span(words: list[tuple[str, int, int]]) -> None:
    text = ",".join(f"{name}[{first}-{first + more}]" for name, first, more in words)
    if words:
        assert len(expand_hosts(text)) == sum(more + 1 for _, _, more in words)
