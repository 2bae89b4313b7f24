"""Error counters of a recorded tree and of a simulated NVML, read before and after something went wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact
from preflight.model.counters import CounterChange, CounterKind, changes
from preflight.model.gap import Gap
from preflight.probe.counters import parse_aer, probe_counters
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
