from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.judge.run.new_hardware_errors import new_hardware_errors
from preflight.model.counters import KERNEL_LOG, NOT_KEPT, CounterChange, CounterKind
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Severity, Unseen
from preflight.model.trial import Outcome
from preflight.model.xids import ROWS
from tests.hardware import counter, run_with
from tests.judge.findings import found, only, skips
from tests.node_facts import trial

FATAL, REPAIRED, TRAFFIC = CounterKind.FATAL, CounterKind.REPAIRED, CounterKind.TRAFFIC


def test_counters_that_did_not_move_give_nothing_however_high_they_stand() -> None:
    assert found(new_hardware_errors, run_with(counters=(counter(), counter("ecc_uncorrected", kind=FATAL)))) == ()


def test_one_new_uncorrectable_error_fails_the_gpu() -> None:
    finding = only(found(new_hardware_errors, run_with(counters=(counter("ecc_uncorrected", 1, kind=FATAL),))))
    assert (finding.blame, finding.severity, finding.subject) == (Blame.GPU, Severity.FAIL, "GPU 0")
    assert finding.evidence[0].value == "5 before, 6 after"


def xid(number: int) -> CounterChange:
    return counter(f"xid_{number}", 1, kind=FATAL, subject="PCI 0000:1b:00", source=KERNEL_LOG, gpu=-1)


def test_an_xid_of_the_hardware_fails_the_gpu_and_is_told_once() -> None:
    total = counter("xids", 1, kind=FATAL, subject=KERNEL_LOG, source=KERNEL_LOG, gpu=-1)
    finding = only(found(new_hardware_errors, run_with(counters=(total, xid(79)))))
    assert (finding.blame, finding.severity, finding.subject) == (Blame.GPU, Severity.FAIL, "PCI 0000:1b:00")
    assert "fallen off the bus" in finding.problem
    assert "catalog" in finding.evidence[1].source


@pytest.mark.parametrize("number", [13, 31, 43, 45, 92, 94])
def test_an_xid_of_a_program_is_a_note(number: int) -> None:
    assert only(found(new_hardware_errors, run_with(counters=(xid(number),)))).severity is Severity.INFO


@pytest.mark.parametrize(
    ("number", "severity", "words"),
    [
        (54, Severity.FAIL, "auxiliary power"),
        (136, Severity.FAIL, "H100"),
        (145, Severity.WARN, "from driver branch R565 on, see NVML's recovery action"),
        (160, Severity.INFO, "no action is needed"),
        (162, Severity.INFO, "no action is needed"),  # power smoothing works again
    ],
)
def test_an_xid_counts_as_the_catalogs_immediate_action_does(number: int, severity: Severity, words: str) -> None:
    finding = only(found(new_hardware_errors, run_with(counters=(xid(number),))))
    assert finding.severity is severity and words in finding.evidence[1].value


def test_an_xid_that_no_row_has_is_a_warning() -> None:
    assert only(found(new_hardware_errors, run_with(counters=(xid(999),)))).severity is Severity.WARN


def test_the_xid_of_ranks_that_preflight_killed_is_nothing_while_others_stand() -> None:
    hung = replace(run_with(counters=(xid(45),)), trials=(trial(outcome=Outcome.HANG),))
    assert found(new_hardware_errors, hung) == ()
    fell = replace(run_with(counters=(xid(45), xid(79))), trials=(trial(outcome=Outcome.HANG),))
    assert only(found(new_hardware_errors, fell)).severity is Severity.FAIL


def test_xid_45_of_a_named_process_is_not_ours_even_where_ranks_were_killed() -> None:
    hung = replace(run_with(counters=(replace(xid(45), name="xid_45_of_777"),)), trials=(trial(outcome=Outcome.HANG),))
    finding = only(found(new_hardware_errors, hung))
    assert finding.severity is Severity.INFO and "xid 45 of 777: 1 new" in finding.problem


@pytest.mark.parametrize(
    ("failed", "severities"), [(0, [Severity.INFO]), (1, [Severity.FAIL, Severity.INFO]), (None, [Severity.WARN])]
)
def test_xid_64_is_judged_by_the_state_of_row_remapping(failed: int | None, severities: list[Severity]) -> None:
    state = counter("row_remap_failed", kind=FATAL)
    told = () if failed is None else (replace(state, before=0, after=failed, grown=failed),)
    assert [each.severity for each in found(new_hardware_errors, run_with(counters=(*told, xid(64))))] == severities


def test_no_xid_is_in_two_rows() -> None:
    numbers = [number for row in ROWS for number in row.numbers]
    assert len(numbers) == len(set(numbers))
    assert all(row.source for row in ROWS)


def test_what_was_survived_is_a_warning_at_once() -> None:
    survived = counter("nvlink_recovery_errors", 1, kind=CounterKind.SURVIVED)
    assert only(found(new_hardware_errors, run_with(counters=(survived,)))).severity is Severity.WARN


DENIED = "/dev/kmsg: Operation not permitted"
NO_EVENTS = "NVML events: NVMLError_NotSupported: the driver does not report this for the GPU"


@pytest.mark.parametrize(
    ("reason", "costs"),
    [
        (f"{DENIED}; {NO_EVENTS}", Unseen.NOTHING),
        (f"{DENIED}; NVML events: NVML did not take the request for events in time", Unseen.ACCEPTANCE),
    ],
)
def test_xids_that_rights_keep_back_cost_nothing_and_a_driver_that_hangs_does(reason: str, costs: Unseen) -> None:
    log = counter("all", Gap(reason), kind=FATAL, subject=KERNEL_LOG, source=KERNEL_LOG, gpu=-1)
    assert skips(new_hardware_errors, run_with(counters=(log,)))[0].costs is costs


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
    no_ecc = counter("ecc_corrected", Gap("NVMLError_NotSupported: the driver does not report this for the GPU"))
    no_aer = counter("aer", Gap(f"{NOT_KEPT} AER counters of these devices"), gpu=-1)
    assert found(new_hardware_errors, run_with(counters=(no_ecc, no_aer))) == ()
