from __future__ import annotations

import json
import time
from dataclasses import fields
from pathlib import Path

import pytest

from preflight.errors import UnreadableFact
from preflight.facts.run import PROBES, Probe, probe_node
from preflight.model.codec import decode, encode, encode_value
from preflight.model.facts import DeviceNodes, Gap, NodeFacts, SystemFacts
from preflight.system.kernel_queries import live_machine
from preflight.system.machine import Json, Recorder, Replay, Tree
from tests.sysroot import answering, build


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
    gaps = {f.name: getattr(node, f.name) for f in fields(node) if f.name not in ("host", "system", "unread_lines")}
    assert {name for name, gap in gaps.items() if not isinstance(gap, Gap)} == set()
    assert all(gap.reason for gap in gaps.values())


@pytest.mark.timing
def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    machine = Tree(build(tmp_path, {"dev/nvidia0": ""}).root, {"nvml": _stall})
    node, durations_s = probe_node(machine, only={"device_nodes"})
    assert isinstance(node.device_nodes, DeviceNodes)
    assert node.shm == node.gpus == Gap("not read: not needed here")
    assert durations_s["shm"] == 0.0 < durations_s["device_nodes"] < 1.0


@pytest.mark.timing
def test_a_probe_that_stalls_costs_its_own_fact_and_no_more_than_the_limit(tmp_path: Path) -> None:
    machine = Tree(build(tmp_path, {"dev/nvidia0": ""}).root, {"nvml": _stall})
    start = time.monotonic()
    node, _ = probe_node(machine, limit_s=1.0, waking_s=0.0)
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
