"""The whole of `preflight check --backend nccl` on simulated machines: nothing stands between it and the real NCCL."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.netns import make_nodes, node_address, second_network
from tests.simcuda.checking import PATIENT, QUICKLY, assert_cured_by, check, machine_of, paths_of
from tests.simcuda.machine import named
from tests.simcuda.sandbox import Sandbox

pytestmark = [
    pytest.mark.simcuda,
    pytest.mark.usefixtures("simcuda_torch"),
    pytest.mark.timeout(900),
    pytest.mark.heavy(3),
]


P2P, SHM = "P2P/CUMEM", "SHM/direct/direct"
HEALTHY = {  # GPUs of 512 MiB, or where many sizes on many ranks would take minutes of 160 MiB, and so smaller sizes
    "2 quick": (named("pcie2-pix"), {P2P}),
    "4 quick": (named("pcie4-2numa"), {P2P, SHM}),
    "8 quick": (named("pcie8-2numa"), {P2P, SHM}),
    "2 standard": (named("pcie2-pix"), {P2P}),
    "4 standard": (machine_of("pcie4-2numa"), {P2P, SHM}),
    "8 standard": (machine_of("pcie8-2numa"), {P2P, SHM}),
}


LONG = {"8 standard": [pytest.mark.skipif("PREFLIGHT_SIMCUDA_EVERY" not in os.environ, reason="takes minutes")]}


@pytest.mark.parametrize("gpus", [pytest.param(name, marks=LONG.get(name, ())) for name in HEALTHY])
def test_a_healthy_machine_is_ready(gpus: str, tmp_path: Path) -> None:
    machine, paths = HEALTHY[gpus]
    ran = check(tmp_path, machine, "--profile", gpus.split()[1], *PATIENT)
    assert ran.code == 0 and ran.report["verdict"] in ("ready", "ready_with_env"), ran
    default = ran.trial("default")
    assert default["outcome"] == "ok" and default["results"], ran
    tried = [result for each in ran.report["trials"] for result in each["results"]]
    assert all(result["verified"] and not result["wrong_elements"] for result in tried)
    assert {result["collective"] for result in default["results"]} == {"all_reduce", "all_gather"}
    assert paths_of(default) == ran.logged("default")
    assert {text.partition(" via ")[2] for text in paths_of(default)} == paths
    assert all(path in ran.stdout for path in paths)
    assert {test["end"] for test in (*ran.report["p2p"], *ran.report["gpu_tests"])} <= {"ok", "inconclusive"}
    assert ran.gpu_test_processes() == len(machine.gpus), "each is kept for all rounds"


def test_a_healthy_node_whose_gpus_wake_slowly_is_accepted(tmp_path: Path) -> None:
    asleep = replace(named("pcie2-pix"), settings={"WAKE_S": "4", "MEMORY_MIB": "2048"})
    ran = check(tmp_path, asleep, "--accept", "--profile", "quick", *PATIENT, "--stage-limit", "240")
    assert (ran.code, ran.report["node_verdict"]) == (0, "accept"), ran
    assert ran.report["durations_s"]["probe"] > 2, (
        "no GPU was asleep: they have been woken since the start of the program"
    )
    assert ran.report["durations_s"]["start of the ranks"] < 4, "a GPU was woken twice"


FAULTS = {  # P2P that loses bytes is in test_who_is_stuck.py
    "p2p-changes": (machine_of("pcie2-pix", P2P_CHANGES="0-1"), {"NCCL_P2P_DISABLE": "1"}),
    "one-pair": (machine_of("pcie4-2numa", P2P_LOSES="0-1"), {"NCCL_P2P_DISABLE": "1"}),
    "interface": (machine_of("pcie2-pix", 2, NETIF_DEAD="eth0"), {"NCCL_SOCKET_IFNAME": "=eth1"}),
    "p2p-and-interface": (
        machine_of("pcie2-pix", 2, NETIF_DEAD="eth0", P2P_LOSES="0-1"),
        {"NCCL_P2P_DISABLE": "1", "NCCL_SOCKET_IFNAME": "=eth1"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_cured_by_exactly_the_settings_that_cure_it(fault: str, tmp_path: Path) -> None:
    machine, cure = FAULTS[fault]
    assert_cured_by(check(tmp_path, machine, *QUICKLY), cure)


def test_a_small_shm_is_cured_by_cumem_where_that_was_switched_off(tmp_path: Path) -> None:
    machine = machine_of("pcie2-pix", P2P_DENIED="all")
    ran = check(tmp_path, machine, *QUICKLY, shm_mib=4, env={"NCCL_CUMEM_HOST_ENABLE": "0"})
    assert ran.code == 0 and ran.report["verdict"] == "ready_with_env", ran
    assert ran.report["advice"]["unset"] == ["NCCL_CUMEM_HOST_ENABLE"] and not ran.report["advice"]["env"]
    assert "/dev/shm" in ran.trial("as-is")["problem"] and ran.trial("default")["outcome"] == "ok"


def test_without_cumem_a_small_shm_is_cured_by_nothing(tmp_path: Path) -> None:
    # NCCL_SHM_DISABLE=1 makes it worse: the buffers of sockets take 33 MB there, of shared memory 10 MB.
    ran = check(tmp_path, machine_of("pcie2-pix", P2P_DENIED="all", CUMEM="0"), *QUICKLY, shm_mib=4)
    assert ran.code == 1 and "shm-too-small" in {finding["check"] for finding in ran.report["findings"]}, ran


def test_what_no_setting_cures_is_not_ready(tmp_path: Path) -> None:
    ran = check(tmp_path, machine_of("pcie2-pix", GPU_WRONG="1"), *PATIENT)
    assert ran.code == 1 and ran.report["verdict"] == "not_ready", ran
    assert ran.trial("default")["outcome"] == "wrong_data" and not ran.report["advice"]["env"]


@pytest.mark.skipif(shutil.which("ip") is None, reason="needs iproute2")
def test_two_nodes_choose_the_interface_that_reaches_the_other(tmp_path: Path) -> None:
    with make_nodes(2) as nodes, second_network(nodes), contextlib.ExitStack() as running:
        for number, node in enumerate(nodes):  # by their first network they don't reach each other
            node.ip("route", "add", "blackhole", f"{node_address(1 - number)}/32")
        nodes[1].ip("link", "set", "eth1", "down")
        nodes[1].ip("link", "set", "eth1", "name", "ens3")
        nodes[1].ip("link", "set", "ens3", "up")
        since = time.monotonic()
        started = []
        for number, node in enumerate(nodes):
            machine = machine_of("pcie2-pix")
            sandbox = Sandbox(machine, tmp_path / f"node{number}", prefix=node.named(f"node{number}"))
            sandbox.place.mkdir()
            place = ("--nnodes", "2", "--node-rank", str(number), "--rdzv-endpoint", "10.80.0.1:29400")
            process = running.enter_context(
                sandbox.started("check", "-v", "--backend", "nccl", "--keep", *place, *QUICKLY)
            )
            started.append((sandbox, process))
        ran = [sandbox.finish(process, since, 800) for sandbox, process in started]
    assert [each.code for each in ran] == [0, 0], "\n".join(map(str, ran))
    each_nodes = [each.sourced(f"node{number}") for number, each in enumerate(ran)]
    assert each_nodes == [{"NCCL_SOCKET_IFNAME": "=eth1"}, {"NCCL_SOCKET_IFNAME": "=ens3"}]
    worked = next(each for each in ran[0].report["trials"] if each["outcome"] == "ok")
    assert {"1>2 via NET/Socket/0", "netif eth1", "netif ens3"} <= set(worked["transport"])
