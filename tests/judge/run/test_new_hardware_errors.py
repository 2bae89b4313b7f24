from __future__ import annotations

import pytest

from preflight.judge.run.new_hardware_errors import new_hardware_errors
from preflight.model.counters import KERNEL_LOG, NOT_KEPT, CounterKind
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Severity
from tests.hardware import counter, run_with
from tests.judge.findings import found, only, skips

FATAL, REPAIRED, TRAFFIC = CounterKind.FATAL, CounterKind.REPAIRED, CounterKind.TRAFFIC


def test_counters_that_did_not_move_give_nothing_however_high_they_stand() -> None:
    assert found(new_hardware_errors, run_with(counters=(counter(), counter("ecc_uncorrected", kind=FATAL)))) == ()


def test_one_new_uncorrectable_error_fails_the_gpu() -> None:
    finding = only(found(new_hardware_errors, run_with(counters=(counter("ecc_uncorrected", 1, kind=FATAL),))))
    assert (finding.blame, finding.severity, finding.subject) == (Blame.GPU, Severity.FAIL, "GPU 0")
    assert finding.evidence[0].value == "5 before, 6 after"


def test_a_new_xid_fails_the_gpu_and_is_told_once() -> None:
    total = counter("xids", 1, kind=FATAL, subject=KERNEL_LOG, source=KERNEL_LOG, gpu=-1)
    named = counter("xid_79", 1, kind=FATAL, subject="PCI 0000:1b:00", source=KERNEL_LOG, gpu=-1)
    finding = only(found(new_hardware_errors, run_with(counters=(total, named))))
    assert (finding.blame, finding.severity, finding.subject) == (Blame.GPU, Severity.FAIL, "PCI 0000:1b:00")
    assert only(found(new_hardware_errors, run_with(counters=(total,)))).subject == KERNEL_LOG


@pytest.mark.parametrize(("grown", "count"), [(10, 0), (11, 1)])
def test_repaired_errors_warn_above_the_rate_only(grown: int, count: int) -> None:
    findings = found(new_hardware_errors, run_with(counters=(counter(grown=grown),), counted_s=30.0))
    assert [finding.severity for finding in findings] == [Severity.WARN] * count


def test_an_hour_long_burn_may_repair_more() -> None:
    assert found(new_hardware_errors, run_with(counters=(counter(grown=500),), counted_s=3600.0)) == ()


def test_a_port_that_went_down_is_the_fabrics_and_a_fatal_bus_error_the_hosts() -> None:
    down = counter("link_downed", 1, kind=FATAL, subject="mlx5_0:1", source="/sys/class/infiniband", gpu=-1)
    aer = counter("aer_dev_fatal", 1, kind=FATAL, subject="0000:1b:00.0", source="/sys/bus/pci", gpu=-1)
    assert [finding.blame for finding in found(new_hardware_errors, run_with(counters=(down, aer)))] == [
        Blame.FABRIC,
        Blame.HOST,
    ]


def test_bytes_are_no_errors() -> None:
    assert (
        found(
            new_hardware_errors, run_with(counters=(counter("rx_bytes", 10**12, kind=TRAFFIC, subject="eth0", gpu=-1),))
        )
        == ()
    )


def test_a_counter_that_could_not_be_read_is_a_skip_and_never_no_errors() -> None:
    denied = counter("xids", Gap("kernel_log: /dev/kmsg: Operation not permitted"), kind=FATAL, gpu=-1)
    assert "Operation not permitted" in skips(new_hardware_errors, run_with(counters=(counter(), denied)))[0].reason


def test_what_the_gpu_or_the_kernel_does_not_keep_at_all_is_no_gap() -> None:
    no_ecc = counter("ecc_corrected", Gap("NVMLError_NotSupported: the driver does not offer it for this GPU"))
    no_aer = counter("aer", Gap(f"{NOT_KEPT} AER counters of these devices"), gpu=-1)
    assert found(new_hardware_errors, run_with(counters=(no_ecc, no_aer))) == ()
