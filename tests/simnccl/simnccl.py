"""The torch backend `simnccl`: gloo that misbehaves as the environment variable SIMNCCL says (see rules.py).

On a described machine (PREFLIGHT_MACHINE, set by `preflight check --machine FILE`) it chooses interface, network and
transports as NCCL would (simmachine.py), writes NCCL's lines to NCCL_DEBUG_FILE (simlog.py), and is as fast or slow as
the transport; SIMNCCL_VERSION is the version that it plays (default: the machine's own, else 2.27.5).
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, ProcessGroupGloo

if "tests.simnccl" not in sys.modules:  # loaded as the module `simnccl`: its siblings lie beside it
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.simnccl.rules import ACTIONS, STAGES, Rule, parse
from tests.simnccl.simulation import load, phase_of, read_rules

__all__ = ["ACTIONS", "SIMULATED", "STAGES", "Rule", "parse"]

SIMULATED = True
MACHINE = "PREFLIGHT_MACHINE"


class SimNccl(ProcessGroup):
    """A process group that forwards to gloo, and does wrong where a rule says so."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank = rank
        self._sim = load(os.environ.get(MACHINE, ""), rank, size)
        self._rules = read_rules(os.environ.get("SIMNCCL", ""), self._sim is not None)
        self._calls = 0
        segment = _map_segment()
        for phase in self._sim.start() if self._sim else ("setup",):
            self._misbehave("init", phase)
            if self._sim and phase == "bootstrap":
                _meet(store, rank, size)
        if self._sim:
            os.environ.pop("GLOO_SOCKET_IFNAME", None)  # names an interface of the other machine
        self._gloo = ProcessGroupGloo(store, rank, size, timeout)
        os.unlink(segment)  # as NCCL does once both sides have it

    def _misbehave(self, stage: str, phase: str = "") -> list[Rule]:
        """Do what cannot be undone, and return the rules that change the result of the call."""
        signs = self._sim.signs() if self._sim else None
        rules = [rule for rule in self._rules if not phase or phase_of(rule) == phase]
        rules = [rule for rule in rules if rule.applies(self._rank, stage, os.environ, signs)]
        for rule in rules:
            match rule.action:
                case "hang":
                    time.sleep(1e6)
                case "crash":
                    os.kill(os.getpid(), signal.SIGSEGV)
                case "stop":
                    os.kill(os.getpid(), signal.SIGSTOP)
                case "lose" if self._sim:
                    self._sim.lose_by(rule)
                case "error" if self._sim:
                    self._sim.fail_by(rule)
                case "error":
                    raise RuntimeError("simnccl was told to fail")
        return [rule for rule in rules if rule.action in ("corrupt", "slow")]

    def _data(self, call: Callable[[], Any], output: torch.Tensor, collective: str) -> Any:
        stage = "first" if self._calls == 0 else "timed"
        self._calls += 1
        size_bytes = output.numel() * output.element_size()
        if self._sim:
            self._sim.call(collective, size_bytes)
        rules = self._misbehave(stage)
        start = time.perf_counter()
        work = call()
        work.wait()
        if self._sim:
            self._sim.take_time(collective, size_bytes)
        took_s = time.perf_counter() - start
        for rule in rules:
            if rule.action == "corrupt":
                output.view(-1)[-1:].view(torch.uint8)[0] ^= 1
            else:
                time.sleep(took_s * (rule.factor - 1))  # after the work, so that the others are seen waiting
        return work

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        return self._data(lambda: self._gloo.allreduce(tensors, *_options(opts)), tensors[0], "AllReduce")

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        return self._data(lambda: self._gloo.broadcast(tensors, *_options(opts)), tensors[0], "Broadcast")

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        return self._data(lambda: self._gloo.allgather(outputs, inputs, *_options(opts)), outputs[0][-1], "AllGather")

    def _allgather_base(self, output: Any, source: Any, opts: Any = None) -> Any:
        return self._data(lambda: self._gloo._allgather_base(output, source, *_options(opts)), output, "AllGather")

    all_gather_single = _allgather_base

    def _reduce_scatter_base(self, output: Any, source: Any, opts: Any = None) -> Any:
        return self._data(
            lambda: self._gloo._reduce_scatter_base(output, source, *_options(opts)), output, "ReduceScatter"
        )

    reduce_scatter_single = _reduce_scatter_base

    def alltoall_base(self, output: Any, source: Any, output_split: Any, input_split: Any, opts: Any = None) -> Any:
        return self._data(
            lambda: self._gloo.alltoall_base(output, source, output_split, input_split, *_options(opts)),
            output,
            "AllToAll",
        )

    all_to_all_single = alltoall_base

    def barrier(self, opts: Any = None) -> Any:
        return self._gloo.barrier(*_options(opts))

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._gloo._set_default_timeout(timeout)

    def getBackendName(self) -> str:  # noqa: N802  torch's name
        return "simnccl"


def _meet(store: dist.Store, rank: int, size: int) -> None:
    """Wait for all ranks, as the bootstrap does: it exchanges addresses before anything else."""
    store.set(f"bootstrap/{rank}", "here")
    store.wait([f"bootstrap/{each}" for each in range(size)])


def _map_segment() -> str:
    """Make and map a file in /dev/shm under the name that NCCL gives its own, with the test's mark in it."""
    fd, path = tempfile.mkstemp(prefix=f"nccl-{os.environ.get('PREFLIGHT_TEST_MARK', '')}", dir="/dev/shm")
    os.ftruncate(fd, mmap.PAGESIZE)
    _segments.append(mmap.mmap(fd, mmap.PAGESIZE))
    os.close(fd)
    time.sleep(0.2)  # NCCL takes longer than that between making its segments and crashing
    return path


_segments: list[mmap.mmap] = []


def _options(opts: Any) -> tuple[Any, ...]:
    return () if opts is None else (opts,)


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> SimNccl:
    return SimNccl(store, rank, size, timeout)


dist.Backend.register_backend("simnccl", _create, devices=["cpu"])
