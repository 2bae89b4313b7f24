"""The torch backend `simnccl`: gloo that misbehaves as the environment variable SIMNCCL says.

    SIMNCCL  = rule [; rule ...]
    rule     = ACTION[:key=value[,key=value ...]]
    ACTION   = hang | crash | stop (SIGSTOP to itself) | corrupt (one wrong element) | slow (the call returns later)
    keys     = rank=R (default: all), stage=init|first|timed, factor=F (slow), last when=VAR=VALUE or unless=VAR=VALUE

`first` is the group's first data collective, `timed` every later one; barriers don't count. The default stage is timed
for corrupt and slow, init for the others. The value of when/unless runs to the end of the rule; `&` joins conditions.
"""

from __future__ import annotations

import mmap
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, ProcessGroupGloo

SIMULATED = True
ACTIONS = ("hang", "crash", "stop", "corrupt", "slow")
STAGES = ("init", "first", "timed")


@dataclass(frozen=True, slots=True)
class Rule:
    """One fault: what, on which rank (-1: all), at which stage, how much, and under which environment."""

    action: str
    rank: int
    stage: str
    factor: float
    when: tuple[tuple[str, str], ...]
    unless: tuple[tuple[str, str], ...]

    def applies(self, rank: int, stage: str, environ: Any) -> bool:
        return (
            self.rank in (-1, rank)
            and self.stage == stage
            and all(environ.get(name) == value for name, value in self.when)
            and not (self.unless and all(environ.get(name) == value for name, value in self.unless))
        )


def parse(text: str) -> tuple[Rule, ...]:
    """Return the rules of a SIMNCCL value; ValueError says what is wrong."""
    return tuple(_parse_rule(part.strip()) for part in text.split(";") if part.strip())


def _parse_rule(text: str) -> Rule:
    action, _, rest = text.partition(":")
    if action not in ACTIONS:
        raise ValueError(f"SIMNCCL: unknown action {action!r}")
    keys, when, unless = {}, (), ()
    while rest:
        if rest.startswith(("when=", "unless=")):
            kind, _, condition = rest.partition("=")
            pairs = tuple(_parse_condition(each) for each in condition.split("&"))
            when, unless = (pairs, unless) if kind == "when" else (when, pairs)
            break
        word, _, rest = rest.partition(",")
        key, _, value = word.partition("=")
        if key not in ("rank", "stage", "factor"):
            raise ValueError(f"SIMNCCL: unknown key {key!r}")
        keys[key] = value
    stage = keys.get("stage", "timed" if action in ("corrupt", "slow") else "init")
    if stage not in STAGES:
        raise ValueError(f"SIMNCCL: unknown stage {stage!r}")
    return Rule(action, _rank(keys.get("rank")), stage, _factor(keys.get("factor", "5")), when, unless)


def _parse_condition(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise ValueError(f"SIMNCCL: {text!r} is no condition VAR=VALUE")
    return name, value


def _rank(text: str | None) -> int:
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 6):
        raise ValueError(f"SIMNCCL: unknown rank {text!r}")
    return -1 if text is None else int(text)


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor <= 1e6:
        raise ValueError(f"SIMNCCL: factor={text!r} is no number from 1 to 1e6")
    return factor


class SimNccl(ProcessGroup):
    """A process group that forwards to gloo, and does wrong where a rule says so."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank = rank
        self._rules = parse(os.environ.get("SIMNCCL", ""))
        self._calls = 0
        segment = _map_segment()
        self._misbehave("init")
        self._gloo = ProcessGroupGloo(store, rank, size, timeout)
        os.unlink(segment)  # as NCCL does once both sides have it

    def _misbehave(self, stage: str) -> list[Rule]:
        """Do what cannot be undone, and return the rules that change the result of the call."""
        rules = [rule for rule in self._rules if rule.applies(self._rank, stage, os.environ)]
        for rule in rules:
            match rule.action:
                case "hang":
                    time.sleep(1e6)
                case "crash":
                    os.kill(os.getpid(), signal.SIGSEGV)
                case "stop":
                    os.kill(os.getpid(), signal.SIGSTOP)
        return [rule for rule in rules if rule.action in ("corrupt", "slow")]

    def _data(self, call: Callable[[], Any], output: torch.Tensor) -> Any:
        stage = "first" if self._calls == 0 else "timed"
        self._calls += 1
        rules = self._misbehave(stage)
        start = time.perf_counter()
        work = call()
        work.wait()
        took_s = time.perf_counter() - start
        for rule in rules:
            if rule.action == "corrupt":
                output.view(-1)[-1] += 1
            else:
                time.sleep(took_s * (rule.factor - 1))  # after the work, so that the others are seen waiting
        return work

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        return self._data(lambda: self._gloo.allreduce(tensors, *_options(opts)), tensors[0])

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        return self._data(lambda: self._gloo.broadcast(tensors, *_options(opts)), tensors[0])

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        return self._data(lambda: self._gloo.allgather(outputs, inputs, *_options(opts)), outputs[0][-1])

    def _allgather_base(self, output: Any, source: Any, opts: Any = None) -> Any:
        return self._data(lambda: self._gloo._allgather_base(output, source, *_options(opts)), output)

    all_gather_single = _allgather_base

    def _reduce_scatter_base(self, output: Any, source: Any, opts: Any = None) -> Any:
        return self._data(lambda: self._gloo._reduce_scatter_base(output, source, *_options(opts)), output)

    reduce_scatter_single = _reduce_scatter_base

    def alltoall_base(self, output: Any, source: Any, output_split: Any, input_split: Any, opts: Any = None) -> Any:
        return self._data(
            lambda: self._gloo.alltoall_base(output, source, output_split, input_split, *_options(opts)), output
        )

    all_to_all_single = alltoall_base

    def barrier(self, opts: Any = None) -> Any:
        return self._gloo.barrier(*_options(opts))

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._gloo._set_default_timeout(timeout)

    def getBackendName(self) -> str:  # noqa: N802  torch's name
        return "simnccl"


def _map_segment() -> str:
    """Make and map a file in /dev/shm under the name that NCCL gives its own."""
    fd, path = tempfile.mkstemp(prefix="nccl-", dir="/dev/shm")
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
