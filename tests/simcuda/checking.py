"""What the tests of the whole `preflight check` on simulated machines share."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.netns import make_nodes, node_address
from tests.simcuda.machine import Machine, named
from tests.simcuda.sandbox import Checked, Sandbox

SPEEDS = str(Path(__file__).with_name("speeds.toml"))
# GPUs that two cores play are slow: nothing that works may be called hung, and all tests of pairs come to their end.
PATIENT = ("--stage-limit", "60", "--deadline", "600", "--policy", SPEEDS)
QUICKLY = ("--stage-limit", "20", "--deadline", "600", "--policy", SPEEDS)  # for what shall hang

FAILED = ("hang", "crash", "init_error", "wrong_data")


def machine_of(name: str, netifs: int = 1, **settings: str) -> Machine:
    """Return a machine with faults, and so many interfaces: eth0, eth1. 1 MiB is the largest size: sockets are slow."""
    found = [
        {"name": f"eth{i}", "kind": "physical", "is_up": True, "addresses": [f"198.{18 + i}.0.1"]}
        for i in range(netifs)
    ]
    machine = named(name)
    return replace(machine, node={**machine.node, "netifs": found}, settings={"MEMORY_MIB": "160", **settings})


def check(
    folder: Path, machine: Machine, *arguments: str, shm_mib: int = 0, env: Mapping[str, str] | None = None
) -> Checked:
    """Run the check and hold it to leave nothing behind."""
    command = ("check", "-v", "--keep", *arguments)
    return _run(Sandbox(machine, folder, shm_mib << 20 or None), command, env)


def check_nodes(
    folder: Path, machine: Machine, *arguments: str, gpus: str = "0,1", count: int = 2,
    env: Sequence[Mapping[str, str]] = (),
) -> list[Checked]:  # fmt: skip
    """Run the check on so many nodes that share a fabric, each in a network of its own; `env` is by node."""
    with make_nodes(count) as nodes, contextlib.ExitStack() as running:
        since, started = time.monotonic(), []
        for number, node in enumerate(nodes):
            own = {"MEMORY_MIB": "160", **machine.settings, "NODE": str(number), "FABRIC": str(folder / "fabric")}
            place = folder / f"node{number}"
            sandbox = Sandbox(replace(machine, settings=own), place, prefix=node.named(f"node{number}"))
            place.mkdir(parents=True)
            where = ("--nnodes", str(count), "--node-rank", str(number), "--rdzv-endpoint", f"{node_address(0)}:29400")
            command = ("check", "-v", "--backend", "nccl", "--keep", "--gpus", gpus, *where, *arguments)
            process = running.enter_context(sandbox.started(*command, env=env[number] if env else None))
            started.append((sandbox, process))
        ran = [sandbox.finish(process, since, 800) for sandbox, process in started]
    assert {(each.left_processes, each.left_shm) for each in ran} == {("", "")}, "\n".join(map(str, ran))
    return ran


def try_default(folder: Path, machine: Machine, env: Mapping[str, str] | None = None) -> Checked:
    """Try what the job gets and nothing else: of a hang no cure is looked for."""
    sizes = ("--collectives", "all_reduce", "--sizes", "1M")
    command = ("bench", "--profile", "quick", "--stage-limit", "20", "--json", "preflight-report.json", *sizes)
    return _run(Sandbox(machine, folder), command, env)


def _run(sandbox: Sandbox, command: tuple[str, ...], env: Mapping[str, str] | None) -> Checked:
    ran = sandbox.run(*command, "--backend", "nccl", env=env, limit_s=800)
    assert (ran.left_processes, ran.left_shm) == ("", ""), ran
    return ran


def paths_of(trial: dict[str, Any]) -> set[str]:
    """Return the ways between ranks that a trial of the report names."""
    return {text for text in trial["transport"] if " via " in text}


def assert_cured_by(ran: Checked, cure: Mapping[str, str]) -> None:
    """Hold the check to recommend exactly these settings, and each to have been shown by NCCL itself."""
    assert ran.code == 0 and ran.report["verdict"] == "ready_with_env", ran
    assert ran.report["advice"]["env"] == cure, ran
    assert ran.sourced(os.uname().nodename) == cure
    trials = [each for each in ran.report["trials"] if each["outcome"] != "skipped"]
    worked = next(each for each in trials if each["env"] == cure)
    assert worked["outcome"] == "ok" and all(result["verified"] for result in worked["results"])
    assert paths_of(worked) == ran.logged(worked["candidate"])
    failed = [each["env"] for each in trials if each["outcome"] in FAILED]
    for name in cure:  # without it all others fail
        others = cure.items() - {(name, cure[name])}
        assert any(name not in env and others <= env.items() for env in failed), ran
