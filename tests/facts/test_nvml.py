"""From NVML's answers to facts: of simulated machines, and of answers that nobody has seen."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact
from preflight.facts.nvidia_driver import parse_kernel_log, probe_xid_lines
from preflight.facts.nvml import NvmlFacts, parse_uid, probe_nvml
from preflight.model.facts import Gap
from preflight.model.gpu import FabricState, LinkPeer, Mode, P2pStatus
from preflight.system import nvml_values as words
from preflight.system.machine import Tree
from tests.nvmlsim.machine import MIB, SWITCH, SimMachine, bdf, cpu_list, uuid
from tests.nvmlsim.machines import A100X4, H100X8, HEALTHY, L20X10, RTX4090X2, V100X4, with_gpu
from tests.nvmlsim.simulate import simulate
from tests.sysroot import answering, build

VERSIONS = {2: "2.0", 5: "3.1", 6: "4.0"}


def names(machine: SimMachine) -> str:
    return machine.name


@pytest.fixture(params=HEALTHY, ids=names)
def machine(request: pytest.FixtureRequest) -> SimMachine:
    made: SimMachine = request.param
    return made


@pytest.fixture
def facts(machine: SimMachine, tmp_path: Path) -> NvmlFacts:
    return probe_nvml(simulate(machine, tmp_path))


def test_every_gpu_is_what_its_description_says(machine: SimMachine, facts: NvmlFacts) -> None:
    assert facts.driver.version == machine.driver
    assert facts.driver.cuda == f"{machine.cuda // 1000}.{machine.cuda % 100 // 10}"
    assert len(facts.gpus) == len(machine.gpus)
    for i, (gpu, sim) in enumerate(zip(facts.gpus, machine.gpus, strict=True)):
        assert (gpu.nvml_index, gpu.uuid, gpu.bdf, gpu.name, gpu.minor) == (i, uuid(i), bdf(sim), sim.name, i)
        assert gpu.memory_total_bytes == sim.memory_mib * MIB
        assert gpu.memory_reserved_bytes == sim.reserved_mib * MIB
        assert gpu.memory_used_bytes == sim.used_mib * MIB
        assert gpu.memory_free_bytes == (sim.memory_mib - sim.reserved_mib - sim.used_mib) * MIB
        assert gpu.bar1_total_bytes == sim.bar1_mib * MIB
        assert gpu.compute_capability == f"{sim.capability[0]}.{sim.capability[1]}"
        assert (gpu.numa_node, gpu.memory_affinity) == (sim.numa, (sim.numa,))
        assert gpu.cpu_affinity == tuple(sorted(cpu_list(machine.cpus[sim.numa])))
        assert (gpu.power_limit_w, gpu.temperature_c) == (sim.power_w, sim.temperature_c)
        assert (gpu.processes, gpu.utilization_percent, gpu.throttle_reasons) == ((), 0, ("idle",))
        assert not isinstance(gpu.pcie, Gap)
        assert (gpu.pcie.gen, gpu.pcie.gen_max, gpu.pcie.width, gpu.pcie.width_max) == (1, sim.pcie_gen, 16, 16)


def test_what_a_gpu_does_not_offer_is_a_gap(machine: SimMachine, facts: NvmlFacts) -> None:
    for gpu, sim in zip(facts.gpus, machine.gpus, strict=True):
        assert gpu.mig_mode == (Mode.DISABLED if sim.mig else gpu.mig_mode)
        for value, offered in (
            (gpu.mig_mode, sim.mig), (gpu.ecc_mode, sim.ecc), (gpu.ecc, sim.ecc), (gpu.row_remap, sim.remap),
            (gpu.retired_pages, sim.retired), (gpu.recovery_action, sim.recovery), (gpu.fabric, sim.fabric),
        ):  # fmt: skip
            assert isinstance(value, Gap) == (offered is None)


def test_every_link_leads_where_its_description_says(machine: SimMachine, facts: NvmlFacts) -> None:
    for gpu, sim in zip(facts.gpus, machine.gpus, strict=True):
        assert not isinstance(gpu.nvlinks, Gap)
        assert [(link.link, link.generation, link.peer) for link in gpu.nvlinks] == [
            (i, VERSIONS[each.version], LinkPeer.SWITCH if each.peer == SWITCH else LinkPeer.GPU)
            for i, each in enumerate(sim.links)
        ]


LEVELS = {
    H100X8.name: {"NV18": 28},
    L20X10.name: {"PIX": 4, "PXB": 2, "NODE": 14, "SYS": 25},
    RTX4090X2.name: {"PHB": 1},
    A100X4.name: {"NV12": 2, "SYS": 4},
    V100X4.name: {"NV2": 6},
}


def test_every_pair_has_the_level_that_nvidia_smi_would_print(machine: SimMachine, facts: NvmlFacts) -> None:
    assert [(path.a, path.b) for path in facts.gpu_paths] == list(combinations(range(len(machine.gpus)), 2))
    levels = [path.level for path in facts.gpu_paths]
    assert {str(level): levels.count(level) for level in levels} == LEVELS[machine.name]


def test_a_switch_that_a_virtual_machine_does_not_show_is_one_as_nccl_takes_it(tmp_path: Path) -> None:
    hidden = tuple(replace(link, peer=255) for link in H100X8.gpus[0].links)
    facts = probe_nvml(
        simulate(replace(H100X8, gpus=tuple(replace(gpu, links=hidden) for gpu in H100X8.gpus)), tmp_path)
    )
    assert {path.level for path in facts.gpu_paths} == {"NV18"}


def test_peer_access_is_told_by_pair_and_capability(tmp_path: Path) -> None:
    statuses = {(0, 1): (0, 4, 5, 1, 3)}
    pair = probe_nvml(simulate(replace(RTX4090X2, p2p=statuses), tmp_path)).gpu_p2p[0]
    assert (pair.read, pair.write, pair.nvlink, pair.atomics, pair.pci) == (
        P2pStatus.OK, P2pStatus.DISABLED_BY_REGKEY, P2pStatus.NOT_SUPPORTED, P2pStatus.CHIPSET_NOT_SUPPORTED,
        P2pStatus.TOPOLOGY_NOT_SUPPORTED,
    )  # fmt: skip


def test_the_kernel_is_asked_where_nvml_does_not_give_the_width_or_the_node(tmp_path: Path) -> None:
    scripted = {f"nvmlDeviceGet{name}/0": "!3" for name in ("CurrPcieLinkWidth", "MaxPcieLinkWidth", "MemoryAffinity")}
    tree = simulate(replace(RTX4090X2, answers=scripted), tmp_path)
    device = tmp_path / "sys/bus/pci/devices" / bdf(RTX4090X2.gpus[0])
    (device / "current_link_width").write_text("8\n")
    (device / "max_link_width").write_text("16\n")
    gpu = probe_nvml(tree).gpus[0]
    assert not isinstance(gpu.pcie, Gap)
    assert (gpu.pcie.width, gpu.pcie.width_max, gpu.numa_node) == (8, 16, 0)


def test_nvml_is_asked_where_the_kernel_does_not_know_the_node(tmp_path: Path) -> None:
    tree = simulate(L20X10, tmp_path)
    (tmp_path / "sys/bus/pci/devices" / bdf(L20X10.gpus[7]) / "numa_node").write_text("-1\n")
    assert probe_nvml(tree).gpus[7].numa_node == 1


def test_a_fabric_that_registers_is_told_with_its_health(tmp_path: Path) -> None:
    fabric = probe_nvml(simulate(with_gpu(H100X8, 0, fabric=(2, 0, 0b0110_0001)), tmp_path)).gpus[0].fabric
    assert not isinstance(fabric, Gap)
    assert (fabric.state, fabric.problem, fabric.health) == (
        FabricState.IN_PROGRESS,
        "",
        ("degraded_bandwidth", "access_timeout_recovery"),
    )


STATUS = "Name:\tpython3\nUid:\t1001\t1001\t1001\t1001\n"


def busy(tmp_path: Path, namespace: str = "pid:[4026531836]") -> Tree:
    tree = simulate(with_gpu(RTX4090X2, 0, processes=((4242, 600), (77, 1))), tmp_path)
    build(tmp_path, {"proc/4242/comm": "python3", "proc/4242/status": STATUS, "proc/self/status": STATUS})
    os.unlink(tmp_path / "proc/self/ns/pid")
    os.symlink(namespace, tmp_path / "proc/self/ns/pid")
    return tree


def test_a_process_has_its_memory_its_name_and_its_owner(tmp_path: Path) -> None:
    processes = probe_nvml(busy(tmp_path)).gpus[0].processes
    assert not isinstance(processes, Gap)
    first, gone = processes
    assert (first.pid, first.used_bytes, first.name, first.uid, first.is_ours) == (
        4242,
        600 * MIB,
        "python3",
        1001,
        True,
    )
    assert gone.name == Gap("/proc/77/comm: not there")


def test_in_a_pid_namespace_of_its_own_the_hosts_pids_are_not_looked_up(tmp_path: Path) -> None:
    processes = probe_nvml(busy(tmp_path, "pid:[4026532999]")).gpus[0].processes
    assert not isinstance(processes, Gap)
    assert processes[0].pid == 4242
    assert isinstance(processes[0].name, Gap)
    assert "PID namespace" in processes[0].name.reason


XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus."


def test_xid_lines_are_picked_from_the_kernel_log(tmp_path: Path) -> None:
    tree = answering(build(tmp_path, {"sys/module/nvidia/": ""}), {"kernel_log": ["NVRM: loading", XID]})
    assert probe_xid_lines(tree) == (XID,)


def test_without_the_driver_nothing_is_asked(tmp_path: Path) -> None:
    assert probe_xid_lines(build(tmp_path, {"sys/module/ext4/": ""})) == ()


@given(st.lists(st.text()))
def test_any_kernel_log_is_read(lines: list[str]) -> None:
    assert parse_kernel_log(lines) == () or any("Xid" in line for line in lines)


@given(st.integers(0, 1 << 64))
def test_any_throttle_mask_is_told_bit_by_bit(mask: int) -> None:
    assert len(words.parse_throttle_reasons(mask)) == mask.bit_count()


@given(st.integers(0, (1 << 32) - 1))
def test_any_health_mask_is_told(mask: int) -> None:
    assert set(words.parse_health(mask)) <= {*words.FABRIC_FAULTS.values(), *words.CONFIGURATION_FAULTS.values()}


@given(st.integers(), st.sampled_from([words.ANCESTORS, words.NVLINK_GENERATIONS, words.P2P_STATUSES, words.PEERS]))
def test_a_number_without_a_meaning_is_unreadable(number: int, meanings: dict[int, object]) -> None:
    with suppress(UnreadableFact):
        assert words.parse_number(meanings, number, "level") in meanings.values()


@given(st.text())
def test_any_status_file_has_a_uid_or_is_unreadable(text: str) -> None:
    with suppress(UnreadableFact):
        assert parse_uid(text) >= 0
