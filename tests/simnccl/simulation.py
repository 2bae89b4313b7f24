"""One rank of the simulated NCCL: reads the described machine, writes its log, and says what each rule meets."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, NoReturn, TextIO

from tests.simnccl import simlog
from tests.simnccl.rules import Rule, parse
from tests.simnccl.simmachine import Wiring, settings, wire
from tests.simnccl.simpaths import Failure, Version

DEFAULT_VERSION = "2.27.5"
LEVELS = ("VERSION", "WARN", "INFO", "TRACE")
# Beyond what gloo takes, for the slowest link of the ring; not to scale: only their order is like a machine's.
NS_PER_BYTE = {"P2P/NVL": 0.0, "P2P/PCI": 0.5, "SHM/CUMEM": 4.0, "SHM/FILE": 4.0, "NET/IB": 6.0, "NET/Socket": 10.0}
PHASES = ("bootstrap", "network", "setup")
ERROR_AFTER_S = 0.3  # NCCL tries again before it gives up


class Simulation:
    """What NCCL on the described machine would have chosen in this process."""

    def __init__(self, facts: dict[str, Any], rank: int, size: int) -> None:
        node = facts["node"]
        self._nodes, left = divmod(size, len(facts["gpus"]))
        if left or not self._nodes:
            raise ValueError(f"PREFLIGHT_MACHINE: {len(facts['gpus'])} GPUs were chosen for {size} ranks")
        self._facts, self._rank = facts, rank
        gpus = tuple(facts["gpus"]) * self._nodes  # of several nodes all are like this one
        self._gpu = next(gpu for gpu in node["gpus"] if gpu["nvml_index"] == gpus[rank])
        self._env = settings(node, os.environ)
        self.version = _version(node)
        stamp = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        self._write = simlog.Writer(node["host"], os.getpid(), rank, self.version, stamp)
        self._seat = simlog.Seat(rank, size, gpus, self._gpu["bdf"] or "")
        self._level = LEVELS.index(self._env.get("NCCL_DEBUG", "").upper() or "VERSION")
        self._log = _open(self._env.get("NCCL_DEBUG_FILE", ""), node["host"])
        self._wiring: Wiring | None = None
        self._connected = self._has_nvls = False

    @property
    def wiring(self) -> Wiring:
        """What was chosen; choosing may fail as NCCL does."""
        if self._wiring is None:
            try:
                self._wiring = wire(self._facts, os.environ, self.version, self._nodes)
            except Failure as failure:
                self.fail(failure)
        return self._wiring

    def start(self) -> Iterator[str]:
        """Go through init, writing its lines; yield each phase when its lines are out, for what goes wrong in it."""
        if self._rank == 0:
            self._say(simlog.version_line(self.version), "VERSION")
        self._say_all(simlog.set_by_environment(self._write, self._env))
        wiring = self.wiring
        self._say(simlog.bootstrap(self._write, wiring))
        yield "bootstrap"
        was_off = self._env.get("NCCL_IB_DISABLE", "0") not in ("", "0") or "NCCL_NET" in self._env
        self._say_all(simlog.network(self._write, wiring, was_off))
        yield "network"
        self._say_all(simlog.start(self._write, self._seat, wiring))
        yield "setup"
        if self.version < (2, 22):
            self._connect()
        self._say_all(simlog.complete(self._write, self._seat, wiring))

    def signs(self) -> dict[str, frozenset[str]]:
        """Return what rules may ask of this rank."""
        return self.wiring.signs(self._rank, self._gpu["nvml_index"])

    def call(self, collective: str, size_bytes: int) -> None:
        """Note a data collective: the first one connects (since 2.22)."""
        self._connect()
        if self.version >= (2, 22) and not self._has_nvls and simlog.takes_nvls(collective, size_bytes, self.wiring):
            self._has_nvls = True
            self._say(simlog.nvls_made(self._write, self._seat))
        if {"TUNING", "ALL"} & set(self._env.get("NCCL_DEBUG_SUBSYS", "").upper().split(",")):
            self._say(simlog.algorithm(self._write, collective, size_bytes, self.wiring))

    def take_time(self, collective: str, size_bytes: int) -> None:
        """Take as much longer as the slowest link of the ring needs."""
        by_switch = self.wiring.nvls and collective == "AllReduce"
        links = () if by_switch else tuple(map(str, self.wiring.links.values()))
        longer_s = max((NS_PER_BYTE[link] for link in links), default=0.0) * size_bytes / 1e9
        if longer_s > 20e-6:
            time.sleep(longer_s)

    def fail(self, failure: Failure) -> NoReturn:
        """Write the WARN line and raise what torch raises."""
        time.sleep(ERROR_AFTER_S)
        self._say(self._write.warn(failure), "WARN")
        import torch.distributed as dist  # noqa: PLC0415  this module stays importable without torch

        raise dist.DistBackendError(simlog.torch_message(failure, self.version))

    def lose_by(self, rule: Rule) -> NoReturn:
        """Say what the card said of data that no peer acknowledged, and wait for ever, as 2.26.2 to 2.27.7 do."""
        time.sleep(ERROR_AFTER_S)
        self._say(self._write.warn(simlog.lost(rule, self.wiring)), "WARN")
        time.sleep(1e6)
        raise AssertionError("nobody waits so long")

    def fail_by(self, rule: Rule) -> None:
        """Fail as the rule says, or go on without as NCCL does."""
        if not simlog.survives(rule, self.version):
            self.fail(simlog.failure_of(rule, self.wiring, self.version))
        self._say(simlog.proceeding(self._write))
        self._wiring = replace(self.wiring, nvls=False)

    def _connect(self) -> None:
        if not self._connected:
            self._connected = True
            self._say_all(simlog.connections(self._write, self._seat, self.wiring))

    def _say_all(self, lines: Iterator[str]) -> None:
        for line in lines:
            self._say(line)

    def _say(self, line: str, level: str = "INFO") -> None:
        if line and LEVELS.index(level) <= self._level:
            self._log.write(line)
            self._log.flush()


def load(path: str, rank: int, size: int) -> Simulation | None:
    """Return the simulation of the machine in a file; None where no machine is described."""
    if not path:
        return None
    with open(path, encoding="utf-8") as file:
        return Simulation(json.load(file), rank, size)


def read_rules(text: str, has_machine: bool) -> tuple[Rule, ...]:
    """Return the rules; ValueError where one asks for what only a described machine has."""
    rules = parse(text)
    for rule in rules:
        if rule.where and not has_machine:
            raise ValueError(f"SIMNCCL: {rule.where[0][0]}= needs a described machine (`check --machine FILE`)")
    return rules


def phase_of(rule: Rule) -> str:
    """Return the phase of init in which a rule acts."""
    if rule.about("netif") or rule.about("family"):
        return "bootstrap"
    return "network" if rule.about("net") or rule.about("hca") else "setup"


def _version(node: dict[str, Any]) -> Version:
    torch = (node["software"] or {}).get("torch") or {}
    text = os.environ.get("SIMNCCL_VERSION") or torch.get("nccl") or DEFAULT_VERSION
    if not re.fullmatch(r"2\.\d{1,3}(\.\d{1,3})?", text, re.ASCII):
        raise ValueError(f"SIMNCCL_VERSION: {text!r} is no version of NCCL such as 2.27.5")
    return tuple(map(int, text.split(".")))


def _open(pattern: str, host: str) -> TextIO:
    if not pattern:
        return sys.stdout
    path = pattern.replace("%h", host).replace("%p", str(os.getpid()))
    return open(path, "w", encoding="utf-8")
