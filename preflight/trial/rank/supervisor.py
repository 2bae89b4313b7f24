"""The supervisor (per-rank agent), which forks a child process for each test run and joins no collective itself.

The supervisor has one thread. Rank 0's supervisor is also the coordinator (conductor). Supervisors exchange these JSON
files on their control channel:

    ready/R         the agent of rank R has imported torch; trials wait for it, as a slow disk is no stuck rank
    step/I          the conductor's next step: {"kind": "run" or "stop"} and the fields of a Step
                    (or "gpu_tests", "end_gpu_tests" or "groups": see gpu_test_process.py and group_step.py)
    kill/I          a process ends step I for all: {"by": rank, "why": ...}
    end/I/R         rank R's outcome of step I
    ends/I/R        another node's ranks' outcomes, on node 0: {rank: outcome}, R is the first of them
    store/0         several nodes: {"port": ...} of the store that node 0 serves

On several nodes, each node has its own control channel, and the launchers relay the files (trial/nodes/relay.py).
"""

from __future__ import annotations

import json
import os
import time

from preflight.errors import HarnessError
from preflight.model.codec import decode
from preflight.model.run_spec import RunSpec, joint_dir
from preflight.trial.rank.channel import POLL_S, Channel
from preflight.trial.rank.conductor import conduct
from preflight.trial.rank.gpu_test_process import GpuTestProcess
from preflight.trial.rank.group_step import take_groups
from preflight.trial.rank.step import Rank, TakeStep, take_step


def supervise(spec_path: str) -> None:
    """Run this rank's part of every step until the coordinator stops.

    On several nodes, continue with the test runs on all nodes once the launcher has written their specification.
    """
    spec = read_spec(spec_path)
    if int(os.environ["WORLD_SIZE"]) != spec.place.local_size:
        raise HarnessError(f"torchrun made {os.environ['WORLD_SIZE']} ranks, {spec.place.local_size} were asked for")
    _take_part(spec)
    while spec.goes_on:
        path = os.path.join(joint_dir(spec.run_dir), os.path.basename(spec_path))
        while not os.path.exists(path):  # the launcher ends this process where it never comes
            time.sleep(POLL_S)
        spec = read_spec(path)
        _take_part(spec)


def read_spec(path: str) -> RunSpec:
    """Return the specification of this node's ranks, which the launcher wrote to the file `path`."""
    with open(path, encoding="utf-8") as file:
        return decode(RunSpec, json.load(file))


def _take_part(spec: RunSpec) -> None:
    local_rank = int(os.environ["LOCAL_RANK"])
    channel = Channel(os.path.join(spec.run_dir, "control"))
    rank = Rank(spec.place.first_rank + local_rank, local_rank, spec, channel)
    rank.channel.put(f"ready/{rank.rank}", {})
    if rank.rank == 0:
        conduct(rank)
    else:
        _follow(rank)


def _follow(rank: Rank) -> None:
    process = GpuTestProcess()
    take: dict[str, TakeStep] = {
        "run": take_step, "groups": take_groups, "gpu_tests": process.take_round, "end_gpu_tests": process.end,
    }  # fmt: skip
    index = 0
    while True:
        rank.channel.wait(f"step/{index}", until=float("inf"))
        order = rank.channel.get(f"step/{index}")
        if order["kind"] == "stop":
            return
        index = take[order["kind"]](rank, index, order, None)
