"""GPUs that are there and don't work are never taken for a machine without GPUs: the right finding, and never ready."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.cli.trees import BUS, CONTAINER, DEVICE, MODULE, NODES, Files, stand_in_torch
from tests.command import Command
from tests.nvmlsim.machine import NOT_SUPPORTED
from tests.nvmlsim.machines import H100X8
from tests.nvmlsim.simulate import simulate
from tests.sysroot import Link, build

pytestmark = pytest.mark.heavy(4)

FAST_S = 3.0  # importing torch in the ranks alone takes as long
TORCH = "torch-without-cuda"


@dataclass(frozen=True, slots=True)
class Broken:
    """A machine whose GPUs don't work, the findings that say so, and the answer for the node."""

    tree: Files
    torch_cuda: str | None
    failing: tuple[str, ...]
    node_verdict: str
    node_code: int


BOUND: Files = {**DEVICE, f"{BUS}/driver": Link("../../../../bus/pci/drivers/nvidia"), **MODULE}
MACHINES = {
    "no driver": Broken({**DEVICE}, "13.0", ("gpu-driver",), "reject", 1),
    "NVML absent": Broken({**BOUND, **NODES}, "13.0", ("gpu-driver",), "reject", 1),
    "device nodes without a bus entry": Broken(
        {"sys/bus/pci/devices/": "", "proc/1/cgroup": "0::/", **NODES}, "13.0", ("gpu-driver",), "reject", 1
    ),
    "container without /dev/nvidia*": Broken(
        {**BOUND, **CONTAINER}, "13.0", ("gpu-not-passed-in",), "unknown", 3
    ),
    "torch without CUDA": Broken(
        {**BOUND, **NODES}, None, ("gpu-driver", TORCH), "reject", 1
    ),
}  # fmt: skip


@pytest.fixture(params=list(MACHINES))
def broken(request: pytest.FixtureRequest) -> Broken:
    return MACHINES[request.param]


def arguments(command: Command, broken: Broken) -> tuple[list[str], dict[str, str]]:
    build(command.tmp_path / "tree", broken.tree)
    torch = stand_in_torch(command.tmp_path / "torch", broken.torch_cuda, "raise SystemExit('nothing may be launched')")
    return ["--sysroot", str(command.tmp_path / "tree"), "--json", "-"], {"PYTHONPATH": torch}


def failing(document: str) -> tuple[str, ...]:
    return tuple(finding["check"] for finding in json.loads(document)["findings"] if finding["severity"] == "fail")


@pytest.mark.timing
def test_check_is_not_ready_and_launches_nothing(command: Command, broken: Broken) -> None:
    options, env = arguments(command, broken)
    ran = command.run("check", *options, env=env)
    assert ran.code == 1, ran.stderr
    assert (ran.document["verdict"], ran.document["exit_code"]) == ("not_ready", 1)
    assert failing(ran.stdout) == broken.failing
    assert ran.document["trials"] == []
    assert ran.document["simulated"] is True, "another machine's tree is never this machine's verdict"
    assert command.run_dirs == []
    assert ran.took_s < FAST_S
    assert not (command.cwd / "preflight.env").exists()


def test_accept_rejects_the_node_only_for_what_is_the_nodes_fault(command: Command, broken: Broken) -> None:
    options, env = arguments(command, broken)
    ran = command.run("check", "--accept", *options, env=env)
    assert (ran.document["node_verdict"], ran.code) == (broken.node_verdict, broken.node_code)
    assert ran.document["verdict"] == "not_ready"


def test_probe_finds_the_same_but_does_not_take_this_torch_for_that_machines(command: Command, broken: Broken) -> None:
    options, env = arguments(command, broken)
    ran = command.run("probe", *options, env=env)
    assert ran.code == 1, ran.stderr
    assert failing(ran.stdout) == tuple(check for check in broken.failing if check != TORCH)
    assert TORCH in [skipped["check"] for skipped in ran.document["skipped_checks"]]


def test_gloo_that_was_asked_for_turns_them_into_warnings(command: Command, tmp_path: Path) -> None:
    """The run then says nothing of the GPUs, so it may be ready, and says that they don't work."""
    build(command.tmp_path / "tree", MACHINES["no driver"].tree)
    torch = stand_in_torch(tmp_path / "torch", "13.0", "raise ImportError('this stand-in can run nothing')")
    tree = str(command.tmp_path / "tree")
    ran = command.run("check", "--backend", "gloo", "--sysroot", tree, "--json", "-", env={"PYTHONPATH": torch})
    assert ran.code == 3
    severities = {finding["check"]: finding["severity"] for finding in ran.document["findings"]}
    assert severities["gpu-driver"] == "warn"


def test_a_driver_that_offers_no_events_leaves_the_answer_to_what_failed(command: Command, tmp_path: Path) -> None:
    """The process that would listen for Xids ends at once, and is reaped with the ranks before it is asked."""
    simulate(replace(H100X8, answers={"nvmlEventSetCreate": NOT_SUPPORTED}), tmp_path / "driver")
    torch = stand_in_torch(tmp_path / "torch", "13.0", "raise ImportError('this stand-in can run nothing')")
    env = {"PYTHONPATH": torch, "LD_LIBRARY_PATH": str(tmp_path / "driver")}
    ran = command.run("check", "--gpus", "0,1", "--json", "-", env=env)
    assert "this stand-in can run nothing" in ran.stdout
    assert "ProcessLookupError" not in ran.stdout + ran.stderr


def test_a_bus_that_cant_be_read_is_not_a_machine_without_gpus(command: Command) -> None:
    build(command.tmp_path / "tree", {"dev/": "", "proc/1/cgroup": "0::/"})
    ran = command.run("check", "--sysroot", str(command.tmp_path / "tree"), "--json", "-")
    assert (ran.code, ran.document["verdict"]) == (3, "unknown")
    assert ran.document["trials"] == []
    assert "/sys/bus" in ran.document["problems"][0]
