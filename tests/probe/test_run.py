from __future__ import annotations

import json
import subprocess
import time
from dataclasses import fields
from pathlib import Path

import pytest

from preflight.errors import UnreadableFact
from preflight.model.codec import decode, encode, encode_value
from preflight.model.facts import DeviceNodes, Gap, NodeFacts, SystemFacts
from preflight.probe.run import PROBES, Probe, probe_node
from preflight.system.machine import Json, Tree
from preflight.system.questions import live_machine
from preflight.system.recording import Recorder, Replay
from tests.sysroot import answering, build

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "sysfs"
TREES = (
    "ghw_linux-amd64-8581cf3a529e5d8b97ea876eade2f60d.tar.gz",
    "ghw_linux-amd64-accel-nvidia.tar.gz",
    "hwloc_256ia64-64n2s2c.tar.bz2",
    "hwloc_256ppc-8n8s4t.tar.bz2",
    "hwloc_2pa-pcidomain32bits.tar.bz2",
    "hwloc_32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2",
    "hwloc_48amd64-4pa2n6c-sparse.tar.bz2",
    "hwloc_fakememinitiators-1np2c+1npp+gi.tar.bz2",
    "hwloc_fakepcilocalities.tar.bz2",
    "hwloc_nvidia-dgx-gb10.tar.bz2",
    "hwloc_offline-cpu0-node0.tar.bz2",
    "nri_topology-aware_sysfs.tar.bz2",
)
UNUSED = ("*/cpu[0-9]*/*", "*/memory[0-9]*", "*/hugepages*", "*/power/*", "*/block/*", "*/firmware/*")


def _stall() -> Json:
    time.sleep(60)


def test_the_live_machine_gives_facts_that_come_back_from_json() -> None:
    node, durations_s = probe_node(live_machine())
    assert node.host != "unknown"
    assert isinstance(node.system, SystemFacts)
    assert isinstance(node.system.kernel, str)
    assert decode(NodeFacts, encode(node)) == node
    assert all(duration >= 0 for duration in durations_s.values())


def test_an_empty_machine_is_all_gaps_with_reasons(tmp_path: Path) -> None:
    node, _ = probe_node(Tree(tmp_path))
    assert node.host == "unknown"
    gaps = {f.name: getattr(node, f.name) for f in fields(node) if f.name not in ("host", "system")}
    assert {name for name, gap in gaps.items() if not isinstance(gap, Gap)} == set()
    assert all(gap.reason for gap in gaps.values())


def test_a_probe_that_stalls_costs_its_own_fact_and_no_more_than_the_limit(tmp_path: Path) -> None:
    machine = Tree(build(tmp_path, {"dev/nvidia0": ""}).root, {"nvml": _stall})
    start = time.monotonic()
    node, _ = probe_node(machine, limit_s=1.0)
    assert time.monotonic() - start < 10
    assert isinstance(node.driver, Gap)
    assert "stuck" in node.driver.reason
    assert node.gpus == node.driver
    assert isinstance(node.device_nodes, DeviceNodes)


def test_a_probes_own_defect_costs_its_fact_and_not_those_beside_it(tmp_path: Path) -> None:
    node, _ = probe_node(build(tmp_path, {"dev/nvidia0": ""}, {"rlimits": {"memlock": 1}}))
    assert isinstance(node.limits, Gap)
    assert "KeyError" in node.limits.reason
    assert isinstance(node.device_nodes, DeviceNodes)


def test_the_process_gives_its_own_facts_where_the_machine_is_a_tree(tmp_path: Path) -> None:
    process = answering(Tree(tmp_path), {"environment": {"NCCL_DEBUG": "INFO"}})
    node, _ = probe_node(Tree(tmp_path), software=process)
    assert not isinstance(node.environment, Gap)
    assert [variable.name for variable in node.environment] == ["NCCL_DEBUG"]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.fact)
def test_a_recording_of_the_live_machine_gives_what_the_machine_gave(probe: Probe) -> None:
    recorder = Recorder(live_machine())
    try:
        live = encode_value(probe.read(recorder, recorder))
    except UnreadableFact as error:
        live = {"failure": str(error)}
    replay = Replay(json.loads(json.dumps(recorder.record)))
    try:
        replayed = encode_value(probe.read(replay, replay))
    except UnreadableFact as error:
        replayed = {"failure": str(error)}
    assert replayed == live


@pytest.mark.parametrize("archive", TREES)
def test_a_captured_machine_gives_the_interfaces_and_nodes_that_are_in_it(archive: str, tmp_path: Path) -> None:
    if not (CORPUS / archive).exists():
        pytest.skip(f"{CORPUS / archive} is not there: captured machines are not part of the repository")
    excluded = [f"--exclude={pattern}" for pattern in UNUSED]
    subprocess.run(["tar", "xf", str(CORPUS / archive), "-C", str(tmp_path), *excluded], check=True)
    roots = [path.parent for path in tmp_path.rglob("sys") if (path / "devices").is_dir() and len(path.parents) < 12]
    assert roots
    for root in roots:
        _assert_complete(root, probe_node(Tree(root))[0])


def _assert_complete(root: Path, node: NodeFacts) -> None:
    nodes = sorted(int(path.name[4:]) for path in root.glob("sys/devices/system/node/node[0-9]*"))
    assert not isinstance(node.numa_nodes, Gap)
    assert [numa.id for numa in node.numa_nodes] == nodes
    names = {path.parent.name for path in root.glob("sys/class/net/*/ifindex")}
    seen = () if isinstance(node.netifs, Gap) else node.netifs
    assert {netif.name for netif in seen} == names
    gpus = [path for path in root.glob("sys/bus/pci/devices/*/vendor") if path.read_text().strip() == "0x10de"]
    displays = [path.parent.name for path in gpus if path.with_name("class").read_text().startswith("0x03")]
    devices = () if isinstance(node.nvidia_pci, Gap) else node.nvidia_pci
    assert [device.bdf for device in devices] == sorted(displays)
