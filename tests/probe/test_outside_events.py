"""What the kernel counts of processes that it killed or refused, in both versions of cgroups, and of broken memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact
from preflight.model.gap import Gap
from preflight.model.outside_event import OutsideEvent, OutsideKind, events_between
from preflight.probe.cgroup import parse_event_count, usable_cpus
from preflight.probe.outside_events import count_memory_failures, probe_outside_events
from preflight.system.kernel_queries import live_machine
from preflight.system.machine import Tree

ALARMS = [
    "Memory failure: 0x7f3a1: recovery action for dirty LRU page: Recovered",
    "mce: Uncorrected hardware memory error in user-access at 7f3a1000",
    "mce: [Hardware Error]: Machine check events logged",  # a corrected one is nobody's death
]


def tree(root: Path, files: dict[str, str]) -> Tree:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Tree(root, {"kernel_alarms": lambda: ALARMS, "cpu_affinity": lambda: [0, 1, 2, 3]})


def v2(root: Path, oom_kills: int, refused: int) -> Tree:
    inner = "sys/fs/cgroup/job/step"
    return tree(root, {
        "proc/self/cgroup": "0::/job/step\n", f"{inner}/memory.events": f"low 0\noom 9\noom_kill {oom_kills}\n",
        "sys/fs/cgroup/job/memory.events": "oom_kill 77\n", f"{inner}/pids.events": f"max {refused}\n",
        "sys/fs/cgroup/job/pids.events": "max 1\n",
    })  # fmt: skip


def test_version_2_counts_the_kills_of_the_own_cgroup_and_the_refusals_of_all_above(tmp_path: Path) -> None:
    counts = probe_outside_events(v2(tmp_path, 2, 5))
    assert {kind: count for kind, (count, _) in counts.items()} == {
        OutsideKind.OOM_KILL: 2, OutsideKind.PIDS_LIMIT: 6, OutsideKind.MEMORY_FAILURE: 2,
    }  # fmt: skip


def test_version_1_counts_them_too(tmp_path: Path) -> None:
    machine = tree(tmp_path, {
        "proc/self/cgroup": "5:memory:/a\n4:pids:/a\n",
        "sys/fs/cgroup/memory/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        "sys/fs/cgroup/pids/a/pids.events": "max 4\n",
    })  # fmt: skip
    counts = probe_outside_events(machine)
    assert (counts[OutsideKind.OOM_KILL][0], counts[OutsideKind.PIDS_LIMIT][0]) == (3, 4)


def test_what_is_not_there_is_a_gap_and_no_event(tmp_path: Path) -> None:
    nothing = probe_outside_events(Tree(tmp_path))
    assert all(isinstance(count, Gap) for count, _ in nothing.values())
    some = probe_outside_events(v2(tmp_path / "some", 1, 1))
    assert events_between(nothing, some) == events_between(some, nothing) == events_between({}, some) == ()


def test_only_what_grew_happened(tmp_path: Path) -> None:
    before, after = (probe_outside_events(v2(tmp_path / name, kills, 5)) for name, kills in (("a", 1), ("b", 3)))
    assert events_between(before, after) == (OutsideEvent(OutsideKind.OOM_KILL, 2, "the cgroup's memory.events"),)


@given(st.text(max_size=60))
def test_any_text_is_counts_or_our_error(text: str) -> None:
    try:
        assert isinstance(parse_event_count(text, "max"), int)
    except UnreadableFact as error:
        assert "max" in str(error)


@given(st.lists(st.text(max_size=40)) | st.none() | st.integers() | st.dictionaries(st.text(max_size=3), st.none()))
def test_any_answer_of_the_kernel_log_is_a_count_or_our_error(answer: object) -> None:
    try:
        assert count_memory_failures(answer) >= 0
    except UnreadableFact as error:
        assert "kernel log" in str(error)


def test_the_live_machine_answers_or_says_why_not() -> None:
    for count, source in probe_outside_events(live_machine()).values():
        assert source
        assert isinstance(count, Gap) or count >= 0
    assert usable_cpus(live_machine()) > 0


@pytest.mark.parametrize(("cpu_max", "cpus"), [("max 100000", 4.0), ("150000 100000", 1.5), ("900000 100000", 4.0)])
def test_the_usable_cpus_are_the_allowed_ones_or_what_the_cgroup_leaves_of_them(
    tmp_path: Path, cpu_max: str, cpus: float
) -> None:
    machine = tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": cpu_max})
    assert usable_cpus(machine) == cpus
