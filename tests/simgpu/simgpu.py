"""GPUs that are not there: real bytes on the CPU, made-up speeds, and faults as the environment variable SIMGPU says.

    SIMGPU  = rule [; rule ...]
    rule    = ACTION[:key=value[,key=value ...]]
    ACTION  = lost (never written) | scramble | hang | crash | oom | deny (CUDA refuses peer access)
              | orphan (its supervisor is killed) | unforkable (CUDA works in processes that were started by exec)
              | wrong (one wrong element of each product) | unsteady (in every third) | slow | hot (throttled)
    keys    = gpu=P (the place), from=P, to=P, by=copy_engine|sm, above=BYTES, at_once=1 (only while several run),
              factor=F (slow)

Where SIMGPU_DIARY names a file, each process writes there "open PID PLACE" for each GPU that it opens, and when it
imports this "start PID N": so many processes were there that had GPUs open.

A module that a stand-in for NCCL imports DEVICES from, or that is named by itself with a backend of torch.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from preflight.errors import OutOfGpuMemory
from preflight.system import processes
from preflight.trial.rank.gpu_test_cuda import SENTINEL, TorchProduct, pattern
from preflight.trial.rank.gpu_test_devices import Buffer, LoadSample, Product

SIMULATED = True
CPU = torch.device("cpu")
GB_S = {"peer": 24.0, "host": 25.0}
TFLOP_S = {"float32": 60.0, "bfloat16": 700.0}
OVERHEAD_S = 5e-6


@dataclass(frozen=True, slots=True)
class Rule:
    """One fault."""

    action: str
    keys: dict[str, str]

    def holds(self, **facts: object) -> bool:
        """Tell whether every key that the rule has agrees with the facts."""
        above = int(self.keys.get("above", "-1"))
        size = facts.pop("size", None)
        large_enough = above < 0 or (isinstance(size, int) and size > above)
        plain = {key: value for key, value in self.keys.items() if key not in ("above", "factor")}
        return large_enough and all(str(facts.get(key)) == value for key, value in plain.items())


def rules() -> tuple[Rule, ...]:
    """Return what SIMGPU says."""
    parts = [part.strip() for part in os.environ.get("SIMGPU", "").split(";") if part.strip()]
    split = [part.partition(":") for part in parts]
    return tuple(Rule(action, dict(p.split("=") for p in rest.split(",") if p)) for action, _, rest in split)


def _write_down(line: str) -> None:
    if path := os.environ.get("SIMGPU_DIARY"):
        with open(path, "a", encoding="ascii") as diary:
            diary.write(f"{line}\n")


def _with_open_gpus() -> int:
    path = os.environ.get("SIMGPU_DIARY", "")
    lines = Path(path).read_text(encoding="ascii").splitlines() if os.path.exists(path) else []
    pids = {int(line.split()[1]) for line in lines if line.startswith("open")}
    return sum(processes.state(pid) not in processes.GONE for pid in pids)


@dataclass(slots=True)
class Memory:
    """A buffer: where it is, and its numbers. Place -1 is the host."""

    place: int
    numbers: torch.Tensor

    def size(self) -> int:
        return self.numbers.numel() * self.numbers.element_size()


class SimProduct:
    """A small real product on the CPU that claims the time of a large one."""

    def __init__(self, place: int, dtype: str, rows: int) -> None:
        self._real = TorchProduct(CPU, getattr(torch, dtype), rows)
        self._place, self._us, self._count = place, 2 * 4096**3 / TFLOP_S[dtype] / 1e6, 0

    def multiply_us(self) -> float:
        self._real.multiply_us()
        self._count += 1
        mine = [rule for rule in rules() if rule.holds(gpu=self._place)]
        if any(rule.action == "wrong" or (rule.action == "unsteady" and self._count % 3 == 0) for rule in mine):
            self._real._result.view(-1)[0] += 1
        return self._us * max([1.0, *(float(rule.keys["factor"]) for rule in mine if rule.action == "slow")])

    def keep(self) -> None:
        self._real.keep()

    def differs(self) -> bool:
        return self._real.differs()

    def wrong_elements(self) -> int:
        return self._real.wrong_elements()

    def digest(self) -> str:
        return self._real.digest()


class SimDevices:
    """As many GPUs as are asked for."""

    def open(self, place: int, uuid: str, bdf: str) -> None:
        _write_down(f"open {os.getpid()} {place}")
        for rule in rules():
            if rule.action == "oom" and rule.holds(gpu=place):
                raise OutOfGpuMemory(f"CUDA out of memory on {place}")
            if rule.action == "unforkable" and "PREFLIGHT_SUPERVISOR_PID" not in os.environ:  # only exec'd ones have it
                raise RuntimeError("Cannot re-initialize CUDA in forked subprocess.")

    def settle(self, places: Sequence[int]) -> None:
        pass

    def can_access_peer(self, source: int, target: int) -> bool:
        return not any(rule.action == "deny" and rule.holds(**{"from": source, "to": target}) for rule in rules())

    def allocate(self, place: int, elements: int, wide: bool) -> Buffer:
        return Memory(place, torch.zeros(elements, dtype=torch.int64 if wide else torch.int32))

    def allocate_on_host(self, elements: int) -> Buffer:
        return Memory(-1, torch.zeros(elements, dtype=torch.int32))

    def write_pattern(self, buffer: Buffer, salt: int) -> None:
        buffer.numbers.copy_(pattern(buffer.numbers.numel(), salt, CPU))

    def write_sentinel(self, buffer: Buffer) -> None:
        buffer.numbers.fill_(SENTINEL)

    def copy(self, transfers: Sequence[tuple[Buffer, Buffer]]) -> None:
        for source, target in transfers:
            self._copy(source, target, at_once=int(len(transfers) > 1))

    def _copy(self, source: Memory, target: Memory, at_once: int) -> None:
        by = "copy_engine" if source.numbers.dtype == target.numbers.dtype else "sm"
        facts = {"from": source.place, "to": target.place, "by": by, "size": source.size(), "at_once": at_once}
        found = {rule.action for rule in rules() if rule.holds(**facts)}
        if "hang" in found:
            time.sleep(1e6)
        if "orphan" in found:
            os.kill(os.getppid(), signal.SIGKILL)
        if "crash" in found:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "lost" not in found:
            target.numbers.copy_(source.numbers)
        if "scramble" in found:
            target.numbers.view(-1)[-1] += 1

    def time_copies(self, transfers: Sequence[tuple[Buffer, Buffer]], repeats: int) -> float:
        rate: float = GB_S["host" if any(-1 in (s.place, t.place) for s, t in transfers) else "peer"]
        factors = [
            float(rule.keys["factor"])
            for rule in rules()
            if rule.action == "slow" and any(rule.holds(gpu=each.place) for pair in transfers for each in pair)
        ]
        once_s: float = OVERHEAD_S + transfers[0][0].size() / rate / 1e9
        return repeats * once_s * max([1.0, *factors])

    def compare(self, buffer: Buffer, salt: int) -> tuple[int, int]:
        wrong = buffer.numbers != pattern(buffer.numbers.numel(), salt, CPU)
        return int(wrong.sum()), int((wrong & (buffer.numbers == SENTINEL)).sum())

    def product(self, place: int, dtype: str, rows: int) -> Product:
        return SimProduct(place, dtype, rows)

    def sampler(self, place: int, uuid: str) -> Callable[[], LoadSample]:
        hot = any(rule.action == "hot" and rule.holds(gpu=place) for rule in rules())
        reasons = ("hw_thermal_slowdown",) if hot else ()
        return lambda: LoadSample(1200 if hot else 1980, 92 if hot else 55, 410.0, reasons, 5, 16)


DEVICES = SimDevices()
_write_down(f"start {os.getpid()} {_with_open_gpus()}")
