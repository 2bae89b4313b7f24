"""Host lists in short form hold every host once."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from preflight.model.placement import compress

NAMES = st.lists(st.from_regex(r"[a-z-]{0,3}[0-9]{0,4}[a-z]{0,2}", fullmatch=True).filter(bool), max_size=30)


def expand(text: str) -> list[str]:
    """Expand a list the plain way: one bracket a word at most."""
    hosts: list[str] = []
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        head, bracket, rest = word.partition("[")
        if not bracket:
            hosts.append(word)
            continue
        inside, _, tail = rest.partition("]")
        for span in inside.split(","):
            first, _, last = span.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            hosts += [f"{head}{number:0{len(first)}d}{tail}" for number in numbers]
    return hosts


def test_runs_are_joined_and_leading_zeros_kept() -> None:
    assert compress(["gpu001", "gpu003", "gpu002", "gpu010", "login"]) == "gpu[001-003,010],login"
    assert compress(["a9", "a10"]) == "a[9],a10".replace("a[9]", "a9")
    assert compress(["n1.rack2", "n1.rack3"]) == "n1.rack[2-3]"
    assert compress([]) == ""


@given(NAMES)
def test_every_host_is_in_the_list_once(names: list[str]) -> None:
    assert sorted(expand(compress(names))) == sorted(set(names))


@given(st.lists(st.text(max_size=8), max_size=5))
def test_odd_names_never_raise(names: list[str]) -> None:
    assert all(name in compress(names) for name in names) or any(c.isdigit() for c in itertools.chain(*names))
