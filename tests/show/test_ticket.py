"""A ticket answers what a support desk asks back: which part, since when, what was tried, how to see it again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.model.change import Change
from preflight.model.counters import CounterChange, CounterKind
from preflight.model.facts import known
from preflight.model.finding import Severity
from preflight.model.gap import Gap
from preflight.model.gpu import EccCounts, RowRemap
from preflight.model.gpu_test import Ending
from preflight.model.hca import Gid, HcaPort, Nic, NicKind, PhysState, PortState
from preflight.show.ticket import MOST_COUNTERS, MOST_XIDS, render_ticket
from tests.hardware import pair
from tests.show.outputs import every_report

REPORTS = every_report()
(BLAMED_GPU, *_) = (each for each in REPORTS["blame gpu"].findings if each.check == "gpu-recovery")


def counter(name: str, before: int, after: int | Gap) -> CounterChange:
    grown = after if isinstance(after, Gap) else after - before
    return CounterChange("mlx5_0:1", name, CounterKind.FATAL, before, after, grown, "port counters", -1)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("blame gpu", ("GPU 1, NVIDIA H100 80GB HBM3, GPU-00000001, PCI 0000:11:00.0", "recovery action: node reboot")),
        ("blame fabric", ("subnet manager's LID: none")),
        ("blame host", ("default: crash: rank 1: crash in the first collective", "Segmentation fault")),
    ],
)
def test_it_names_the_part_the_time_the_versions_and_the_commands(name: str, parts: tuple[str, ...]) -> None:
    ticket = render_ticket(REPORTS[name])
    assert ticket.startswith("node1: NODE REJECTED: ")
    for text in (*parts, "2026-10-05T12:00:00Z (UTC)", "kernel 6.1.0", "NVIDIA driver 580.95.05", "NCCL 2.28.9",
                 "preflight check --accept --profile standard"):  # fmt: skip
        assert text in ticket, text


def test_counters_have_both_values_and_what_could_not_be_read() -> None:
    grown = tuple(counter(f"error_{n}", 3, 3 + n) for n in range(MOST_COUNTERS + 3))
    ticket = render_ticket(replace(REPORTS["blame fabric"], counters=(*grown, counter("other", 1, Gap("no file")))))
    assert "mlx5_0:1 error_2: 3 -> 5" in ticket and "error_0" not in ticket
    assert "and 2 other counters" in ticket and "could not be read: mlx5_0:1 other" in ticket
    still = render_ticket(replace(REPORTS["blame fabric"], counters=(counter("a", 1, 1),)))
    assert "none of the 1 that were read grew" in still


def test_it_has_both_partners_and_what_changed_since_it_was_good() -> None:
    bad = pair(a=0, b=3, end=Ending.HANG, problem="the copy did not end")
    change = Change("GPU 3", "PCIe lanes", "16", "8", 92, "copies are slower")
    told = replace(REPORTS["blame gpu"], p2p=(bad, pair()), good_at="2026-10-01T00:00:00+00:00", changed=(change,))
    ticket = render_ticket(told)
    assert (
        "GPUs 0 and 3: hang: the copy did not end; 0 to 3: 6 of 6 copies right, 3 to 0: 6 of 6" in ticket
        and "1 pair right in every byte" in ticket
    )
    assert "Changed since it was good (2026-10-01T00:00:00Z)" in ticket and "GPU 3 PCIe lanes: 16 -> 8" in ticket


def test_it_has_what_decides_an_exchange_and_the_kernels_own_lines() -> None:
    (node,) = REPORTS["blame gpu"].nodes
    ecc = EccCounts(0, 3, 12, Gap("not kept"))
    remap = RowRemap(2, 9, is_pending=False, has_failed=True)
    gpus = tuple(replace(each, row_remap=remap, ecc=ecc) for each in known(node.gpus))
    lines = [f"NVRM: Xid (PCI:{bdf}): 64, {n}" for bdf in ("0000:11:00", "0000:99:00") for n in range(MOST_XIDS + 1)]
    told = replace(REPORTS["blame gpu"], nodes=(replace(node, gpus=gpus, xid_lines=tuple(lines)),))
    ticket = render_ticket(told)
    assert "rows remapped: 2 correctable, 9 uncorrectable; a remap waits for a reset: no; a remap failed: yes" in ticket
    assert "0 corrected, 3 uncorrected since the driver was loaded; 12 corrected, not kept uncorrected over" in ticket
    assert "1 older line, in the full report" in ticket and "Xid (PCI:0000:11:00): 64, 10" in ticket
    assert "0000:99" not in ticket and "(PCI:0000:11:00): 64, 0" not in ticket
    assert "server Supermicro SYS-821GE-TNHR, BIOS American Megatrends 2.1 01/26/2024" in ticket
    elsewhere = render_ticket(replace(told, nodes=(replace(node, gpus=gpus, xid_lines=tuple(lines[-2:])),)))
    assert "Xid lines of the kernel log:\n  none about these GPUs, and 2 about others" in elsewhere
    unread = replace(told, nodes=(replace(node, xid_lines=Gap("dmesg needs root")),))
    assert "Xid lines of the kernel log:\n  not read: dmesg needs root" in render_ticket(unread)


def test_of_pairs_with_one_gpu_in_common_only_that_gpu_is_at_fault_and_a_problem_stands_once() -> None:
    (node,) = REPORTS["eight"].nodes
    uuids = [gpu.uuid for gpu in known(node.gpus)]
    slow = [
        replace(BLAMED_GPU, check="p2p-slow", subject=f"node1 GPU pair {a}-3", parts=(f"{uuids[a]}+{uuids[3]}",))
        for a in range(3)
    ]
    ticket = render_ticket(replace(REPORTS["eight"], findings=tuple(slow)))
    assert ticket.count("p2p-slow, ") == 1 and "node1 GPU pair 0-3; node1 GPU pair 1-3; node1 GPU pair 2-3: " in ticket
    accused = ticket.partition("Parts that the findings name:\n")[2].partition("\n\n")[0]
    assert str(uuids[3]) in accused and not any(str(uuid) in accused for uuid in uuids[:3])
    accepted = render_ticket(replace(REPORTS["accepted"], findings=(replace(slow[0], severity=Severity.WARN),)))
    assert accepted.startswith("node1 GPU pair 0-3: ") and "(NODE ACCEPTED, with warnings)" in accepted.splitlines()[0]
    alone = render_ticket(replace(REPORTS["eight"], findings=tuple(slow[:1])))
    assert all(str(uuid) in alone for uuid in (uuids[0], uuids[3]))


def test_a_gpu_is_found_by_its_pci_address_and_a_rank_that_hung_is_only_where_it_showed() -> None:
    (node,) = REPORTS["eight"].nodes
    gpu = known(node.gpus)[2]
    xid = replace(BLAMED_GPU, check="new-hardware-errors", subject=f"PCI {str(gpu.bdf)[:-2]}: xid 79", parts=())
    ticket = render_ticket(replace(REPORTS["eight"], findings=(xid,)))
    assert f"GPU 2, {gpu.name}, {gpu.uuid}, PCI {gpu.bdf} (new-hardware-errors)\n" in ticket
    assert "nvidia-smi -q -i 2 | grep -iE 'serial" in ticket
    twice = replace(REPORTS["eight"], nodes=(node, replace(node, host="node2")), findings=(xid,))
    assert "Parts that" not in render_ticket(twice), "an address alone names no node"
    named = replace(xid, subject=f"node2 GPU 2 ({gpu.bdf})")
    on_second = render_ticket(replace(twice, nodes=(replace(node, gpus=()), twice.nodes[1]), findings=(named,)))
    assert f"  node2, GPU 2, {gpu.name}" in on_second and "replay'   # on node2" in on_second
    pcie = replace(BLAMED_GPU, check="pcie-width", parts=(str(gpu.uuid),))
    assert f"sudo lspci -vv -s {gpu.bdf} | grep" in render_ticket(replace(REPORTS["eight"], findings=(pcie,)))
    nvlink = render_ticket(replace(REPORTS["eight"], findings=(replace(pcie, check="nvlink-down"),)))
    assert "nvidia-smi nvlink $q -i 2" in nvlink and "lspci" not in nvlink
    hung = replace(BLAMED_GPU, check="trial-failed", subject="trial default", parts=(str(gpu.uuid),))
    ticket = render_ticket(replace(REPORTS["eight"], findings=(hung,)))
    assert (
        f"{gpu.uuid}, PCI {gpu.bdf} (trial-failed: the error was reported here, but the fault may be elsewhere)"
        in ticket
    )
    other = known(node.gpus)[5]
    told = render_ticket(replace(REPORTS["eight"], findings=(hung, replace(pcie, parts=(str(other.uuid),)))))
    assert f"{other.uuid}, PCI {other.bdf} (pcie-width)" in told and "the error was reported here" not in told


def test_a_port_that_a_finding_names_comes_with_what_identifies_it() -> None:
    report = REPORTS["blame fabric"]
    gid = Gid(0, "fe80:0000:0000:0000:0002:c903:0012:aa01", "IB/RoCE v1", Gap("none"))
    port = HcaPort("mlx5_0", 1, PortState.INIT, PhysState.LINK_UP, 400.0, "InfiniBand", 0, 0, (gid,), (), ())
    other = replace(port, hca="mlx5_1")
    nic = Nic("mlx5_0", NicKind.INFINIBAND, "0000:0c:00.0", "mlx5_core", "15b3:1021", "28.39.1002", 0, ())
    ticket = render_ticket(replace(report, nodes=(replace(report.nodes[0], hca_ports=(port, other), nics=(nic,)),)))
    named = f"mlx5_0 port 1, InfiniBand, GID {gid.gid}, PCI 0000:0c:00.0, PCI id 15b3:1021, firmware 28.39.1002"
    assert f"  {named}, state INIT, physical state LinkUp\n" in ticket
    assert "sudo lspci -vv -s 0000:0c:00.0 | grep -E '\\[PN\\]|\\[SN\\]|Physical Slot|LnkCap|LnkSta'" in ticket
    assert "sudo mlxlink -d mlx5_0 -p 1 -m -c " in ticket
    assert "mlx5_1" not in ticket


def test_an_unknown_run_keeps_its_reason_in_the_title() -> None:
    warning = replace(BLAMED_GPU, severity=Severity.WARN, check="pcie-width", problem="PCIe x8")
    ticket = render_ticket(replace(REPORTS["unknown"], findings=(warning,)))
    assert "PCIe x8" not in ticket.splitlines()[0] and "WARN pcie-width" in ticket


def test_a_good_node_gives_no_ticket_and_a_simulated_one_says_that_it_is() -> None:
    assert "there is nothing to report" in render_ticket(REPORTS["accepted"])
    simulated = render_ticket(replace(REPORTS["blame gpu"], simulated=True))
    assert simulated.startswith("SIMULATED: NO REAL HARDWARE WAS TESTED. ")
