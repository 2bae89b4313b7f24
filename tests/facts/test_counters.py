"""What hardware and kernel count, of a recorded tree and of a simulated NVML, before and after something went wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact
from preflight.facts.cgroup import parse_event_count, usable_cpus
from preflight.facts.counters import count_memory_failures, parse_aer, probe_counters, probe_outside_events
from preflight.model.counters import CounterChange, CounterKind, OutsideEvent, OutsideKind, changes, events_between
from preflight.model.gap import Gap
from preflight.system.kernel_queries import live_machine
from preflight.system.machine import Tree
from tests.nvmlsim.machine import SimMachine, render
from tests.nvmlsim.machines import H100X8, RTX4090X2, with_gpu
from tests.nvmlsim.simulate import LIBRARY, simulate
from tests.sysroot import build

AER = "RxErr 0\nBadTLP {n}\nTOTAL_ERR_COR {n}\n"
PORT = "sys/class/infiniband/mlx5_0/ports/1"
BDF = "0000:18:00.0"


def grown(before: tuple[object, ...], after: tuple[object, ...]) -> dict[tuple[str, str], CounterChange]:
    return {(each.subject, each.name): each for each in changes(before, after)}  # type: ignore[arg-type]


def become(machine: SimMachine, root: Path) -> None:
    """Have the simulated NVML answer as this machine from its next start on."""
    (root / f"{LIBRARY}.machine").write_text(render(machine), encoding="utf-8")


def test_memory_errors_that_come_up_during_a_run_are_the_difference(tmp_path: Path) -> None:
    old = with_gpu(H100X8, 3, ecc_counts=(7, 1, 7, 1))
    tree = simulate(old, tmp_path)
    before = probe_counters(tree)
    become(with_gpu(old, 3, ecc_counts=(9, 2, 9, 2), remap=(0, 1, 1, 0)), tmp_path)
    found = grown(before, probe_counters(tree))
    assert found["GPU 3", "ecc_corrected"].grown == 2
    assert (found["GPU 3", "ecc_uncorrected"].grown, found["GPU 3", "ecc_uncorrected"].kind) == (1, CounterKind.FATAL)
    assert found["GPU 3", "rows_remapped_uncorrectable"].grown == 1
    assert found["GPU 2", "ecc_uncorrected"].grown == 0
    assert found["GPU 3", "ecc_corrected"].gpu == 3


def test_nvlink_and_pcie_errors_are_summed_over_a_gpus_links(tmp_path: Path) -> None:
    tree = simulate(H100X8, tmp_path)
    before = probe_counters(tree)
    answers = {
        "nvmlDeviceGetNvLinkErrorCounter/5/0/0": "2",
        "nvmlDeviceGetNvLinkErrorCounter/5/7/0": "3",
        "nvmlDeviceGetNvLinkErrorCounter/5/7/1": "1",
        "nvmlDeviceGetPcieReplayCounter/5": "4",
    }
    become(replace(H100X8, answers=answers), tmp_path)
    found = grown(before, probe_counters(tree))
    assert found["GPU 5", "nvlink_replay_errors"].grown == 5
    assert found["GPU 5", "nvlink_recovery_errors"].grown == 1
    assert found["GPU 5", "pcie_replays"].grown == 4
    assert found["GPU 4", "nvlink_crc_errors"].grown == 0


def test_what_a_consumer_card_does_not_count_is_a_gap_in_the_drivers_words(tmp_path: Path) -> None:
    counters = {each.name: each.value for each in probe_counters(simulate(RTX4090X2, tmp_path)) if each.gpu == 0}
    assert isinstance(counters["ecc_uncorrected"], Gap)
    assert counters["ecc_uncorrected"].reason.startswith("NVMLError_NotSupported")
    assert counters["pcie_replays"] == 0


def test_a_driver_that_is_gone_is_one_gap_and_never_no_errors(tmp_path: Path) -> None:
    build(tmp_path, {"sys/bus/pci/devices/": "", "sys/class/infiniband/": ""})
    found = [each for each in probe_counters(Tree(tmp_path)) if each.subject == "NVML"]
    assert len(found) == 1
    assert isinstance(found[0].value, Gap)


def test_bus_errors_port_errors_and_bytes_come_from_sys(tmp_path: Path) -> None:
    tree = simulate(H100X8, tmp_path)

    def write(errors: int, symbols: int, downs: int, words: int) -> None:
        build(
            tmp_path,
            {
                f"sys/bus/pci/devices/{BDF}/aer_dev_correctable": AER.format(n=errors),
                f"{PORT}/state": "4: ACTIVE",
                f"{PORT}/counters/symbol_error": str(symbols),
                f"{PORT}/counters/link_downed": str(downs),
                f"{PORT}/counters/port_xmit_data": str(words),
                "sys/class/net/eth0/statistics/rx_bytes": str(1000 * words),
            },
        )

    write(3, 0, 2, 100)
    before = probe_counters(tree)
    write(15, 1, 3, 150)
    found = grown(before, probe_counters(tree))
    assert found[BDF, "aer_dev_correctable"].grown == 12
    assert (found["mlx5_0:1", "symbol_error"].grown, found["mlx5_0:1", "link_downed"].grown) == (1, 1)
    assert found["mlx5_0:1", "port_xmit_data"].grown == 200, "the kernel counts words of four bytes"
    assert found["eth0", "rx_bytes"].grown == 50_000
    assert found["eth0", "rx_bytes"].kind is CounterKind.TRAFFIC


def test_a_request_that_a_device_did_not_support_and_a_link_that_trained_anew_are_no_fatal_errors(
    tmp_path: Path,
) -> None:
    tree = simulate(H100X8, tmp_path)
    place = f"sys/bus/pci/devices/{BDF}"
    build(tmp_path, {f"{place}/aer_dev_{kind}": f"TOTAL_ERR_{kind.upper()} 1" for kind in ("nonfatal", "fatal")})
    kinds = {each.name: each.kind for each in probe_counters(tree)}
    assert kinds["aer_dev_nonfatal"] is kinds["nvlink_recovery_errors"] is CounterKind.SURVIVED
    assert kinds["aer_dev_fatal"] is CounterKind.FATAL


def test_devices_without_aer_files_are_told_as_such(tmp_path: Path) -> None:
    (aer,) = [each for each in probe_counters(simulate(H100X8, tmp_path)) if each.name == "aer"]
    assert isinstance(aer.value, Gap)
    assert aer.value.reason.startswith("the kernel keeps no AER counters")


@given(st.text())
def test_any_aer_file_is_a_number_or_our_error(text: str) -> None:
    try:
        assert parse_aer(text, "TOTAL_ERR_COR") >= 0
    except UnreadableFact as error:
        assert "TOTAL_ERR_COR" in str(error)


@given(st.integers(0, 10**12))
def test_the_total_of_an_aer_file_is_found_among_its_lines(count: int) -> None:
    assert parse_aer(AER.format(n=count), "TOTAL_ERR_COR") == count


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
