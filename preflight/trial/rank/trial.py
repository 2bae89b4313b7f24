"""The child process of a test run, which forms one process group in the environment of one configuration."""
# NCCL reads its environment once per process, so every test run has its own process. A per-rank agent that has imported
# torch forks the child. If a fork is not safe, exec starts the child (`python -m preflight.trial.rank.trial ASSIGNMENT
# FD`). The child reports each stage and then ends.

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from preflight.errors import UsageError
from preflight.model.codec import decode
from preflight.model.collective import Collective
from preflight.model.parsing import version_tuple
from preflight.model.run_spec import Assignment, Measure, StageLimits
from preflight.model.samples import pack_samples
from preflight.model.transport import texts_of
from preflight.model.trial import NOT_REGISTERED
from preflight.system.child import Parent
from preflight.system.loaded_nccl import loaded_nccl
from preflight.system.processes import stop_with_parent
from preflight.trial.rank.buffers import Ranks
from preflight.trial.rank.channel import Report
from preflight.trial.rank.gpu_test_child import do_groups
from preflight.trial.rank.gpu_test_devices import check_device
from preflight.trial.rank.measure import measure_collective, prove_first
from preflight.trial.rank.store import open_store
from preflight.trial.rank.transport import transport

HANGS_WITH_DEVICE = (2, 7, 0)  # of torch
FAREWELL_S = 5.0
# torch's words for an error that NCCL returned, and for one that its watchdog found
NCCL_ERROR = re.compile(r"NCCL error(?: in: [^,\n]{0,300},|:) *(?P<what>[^,(\n]{0,200})")
NCCL_LAST_WORDS = "Last error:"
LOST_PEER = (
    "connection reset", "connection closed", "broken pipe", "remote process exited", "ncclremoteerror",
)  # fmt: skip
CALLS_BESIDES = 10  # warm-up, verification and filling, in calls of the same size
TELLING_BYTES = 64 << 10  # smaller calls are latency: by 8 bytes in 50 us, 1 MiB would take 7 s
LEAST_BYTES_PER_S = 10e6  # assumed where none was telling; a slow network of 1 Gbit/s carries ten times as much


def main(assignment: Assignment, fd: int) -> None:
    """Do the test run in `assignment`, report all events as JSON lines on the descriptor `fd`, and end the process."""

    def report(event: dict[str, Any]) -> None:
        os.write(fd, json.dumps(event).encode() + b"\n")

    code = 1
    try:
        os.setpgid(0, 0)
        report({"stage": "spawned"})
        _run(assignment, report)
        code = 0
    except Exception as error:  # noqa: BLE001  whatever a backend raises is this trial's result
        report({"error": kind_of(error), "detail": line_of(error)})
        traceback.print_exc()
    finally:
        # Not sys.exit: tearing down a group whose peers are gone may abort or block.
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def _run(assignment: Assignment, report: Report) -> None:
    for name in assignment.unset_env:
        os.environ.pop(name, None)
    os.environ.update(assignment.set_env)
    module = importlib.import_module(assignment.backend.module) if assignment.backend.module else None
    if module is not None:
        report({"simulated": bool(getattr(module, "SIMULATED", False))})
        if not hasattr(dist.Backend, assignment.backend.name.upper()):
            raise UsageError(f"the module {assignment.backend.module} registers no backend {assignment.backend.name}")
    if assignment.tests_gpus:
        do_groups(assignment, module, report, Parent(-1, 0).questions())
        return
    report({"stage": "device"})
    ranks = Ranks(assignment.rank, assignment.world_size, _device(assignment))
    report({"stage": "store"})
    store = open_store(assignment)
    report({"stage": "init"})
    since = time.monotonic()
    _make_group(assignment, PrefixStore(f"group{assignment.side}", store), ranks)
    nccl = loaded_nccl() if assignment.backend.name == "nccl" else ""
    report({"stage": "first", "world_size": dist.get_world_size(), "nccl": nccl})
    _set_timeouts(store, assignment.limits, "first")
    first_since = time.monotonic()
    wrong = prove_first(_in_time(ranks, assignment.limits.own_timeout_s("first")))
    now = time.monotonic()
    connect_us = (now - since) * 1e6  # NCCL connects in either, by torch's version
    carried = texts_of(transport(assignment.backend.dialect))
    report({"first_wrong": wrong, "connect_us": connect_us, "first_s": now - first_since, "transport": carried})
    _measure_all(assignment, store, ranks, report)
    # Once more: NCCL connects an algorithm's rings and trees at their first use, which may be a larger size.
    report({"stage": "verified", "transport": texts_of(transport(assignment.backend.dialect))})
    _say_farewell(store, assignment)
    report({"stage": "done"})


def _device(assignment: Assignment) -> torch.device:
    gpus, place = assignment.gpus, assignment.local_rank
    if not gpus.uuids:
        return torch.device("cpu")
    device = torch.device("cuda", place)
    torch.cuda.set_device(device)
    check_device(torch.cuda.get_device_properties(device), gpus.uuids[place], gpus.bdfs[place])
    return device


def _make_group(assignment: Assignment, store: Store, ranks: Ranks) -> None:
    options = device_options(ranks.device)
    dist.init_process_group(
        assignment.backend.name,
        store=store,
        rank=ranks.rank,
        world_size=ranks.world_size,
        timeout=timedelta(seconds=assignment.limits.own_timeout_s("init")),
        **options,
    )
    if ranks.device.type == "cuda" and not options:
        # An older torch starts NCCL in the first call. Whether its bytes arrive is for the next stage to wait for.
        dist.all_reduce(torch.zeros(1, dtype=torch.float32, device=ranks.device))


def device_options(device: torch.device) -> dict[str, Any]:
    """Return the options with which init_process_group binds the group to the GPU `device`.

    The result is empty for a CPU, for torch before 2.3 and for torch 2.7.0.
    """
    # The options make NCCL start together with the group, and not in the first collective. torch before 2.3 does not
    # support the options. torch 2.7.0 gets no options, because they turn on a mode of NCCL that hangs at random
    # (pytorch issue 153960).
    takes_it = "device_id" in inspect.signature(dist.init_process_group).parameters
    takes_it &= version_tuple(torch.__version__)[:3] != HANGS_WITH_DEVICE
    return {"device_id": device} if device.type == "cuda" and takes_it else {}


def _set_timeouts(store: Store, limits: StageLimits, stage: str, expected_s: float = 0.0) -> None:
    """Set the timeout of the process group for one step, if torch and the backend allow it.

    torch < 2.4 and other backends keep the timeout with which the group was created. On GPUs, the rank's own deadline
    is earlier than the group's timeout. If the group's timeout came first, torch's watchdog would end the process, and
    the stage of the hang would be unknown.
    """
    own_s = limits.own_timeout_s(stage, expected_s)
    store.set_timeout(timedelta(seconds=own_s))
    setter = getattr(dist, "set_timeout", None) or getattr(dist.distributed_c10d, "_set_pg_timeout", None)
    backend = dist.get_backend()
    if setter is not None and backend in ("nccl", "gloo"):
        group_s = limits.watchdog_s(stage, expected_s) if backend == "nccl" else own_s
        setter(timedelta(seconds=group_s), dist.group.WORLD)


def _measure_all(assignment: Assignment, store: Store, ranks: Ranks, report: Report) -> None:
    steps = len(assignment.measures) * assignment.turns
    seconds_per_byte: dict[Collective, float] = {}
    for step in range(steps):
        turn, place = divmod(step, len(assignment.measures))
        measure = assignment.measures[place]
        expected_s = expected_step_s(measure, seconds_per_byte.get(measure.collective))
        timeout_s = assignment.limits.own_timeout_s("timed", expected_s)
        _set_timeouts(store, assignment.limits, "timed", expected_s)
        with _own_turn(store, assignment, step, first_side=(turn + place) % 2):
            report({"stage": f"timed {step + 1}/{steps}", "expected_s": expected_s})
            agree = _agreement(store, f"{assignment.side}/{step}", assignment)
            since = time.monotonic()
            size_bytes, samples = measure_collective(measure, _in_time(ranks, timeout_s), agree)
            took_s = time.monotonic() - since
        if size_bytes >= TELLING_BYTES:
            seconds_per_byte[measure.collective] = max(samples.call_us) / 1e6 / size_bytes
        measured = {"turn": turn, "collective": measure.collective.value, "size_bytes": size_bytes, "took_s": took_s}
        report({"measured": measured, "samples": pack_samples(samples)})


def _in_time(ranks: Ranks, timeout_s: float) -> Ranks:
    """Return `ranks` with a deadline `timeout_s` seconds from now, after which calls raise TimeoutError.

    A call that begins late has a quarter of `timeout_s`. Such a call still ends before the per-rank agent's limit
    (`timeout_s` / 0.7).
    """
    return replace(ranks, until=time.monotonic() + timeout_s, least_s=timeout_s / 4)


def expected_step_s(measure: Measure, seconds_per_byte: float | None) -> float:
    """Return how many seconds a step of `measure` takes.

    The result is the time budget of the timed calls, plus the time of the other calls at `seconds_per_byte`. If
    `seconds_per_byte` is None, a slow network is assumed.
    """
    call_s = measure.nominal_bytes * (1 / LEAST_BYTES_PER_S if seconds_per_byte is None else seconds_per_byte)
    return measure.budget_s + CALLS_BESIDES * call_s


@contextlib.contextmanager
def _own_turn(store: Store, assignment: Assignment, step: int, first_side: int) -> Iterator[None]:
    """Run the block while the other side of a comparison sleeps.

    The two sides alternate: while one side runs, the other side waits.
    """
    if assignment.sides == 1:
        yield
        return
    if assignment.side != first_side:
        store.wait([f"turn/{step}/{r}/{1 - assignment.side}" for r in range(assignment.world_size)])
    elif step:
        store.wait([f"turn/{step - 1}/{r}/{s}" for r in range(assignment.world_size) for s in (0, 1)])
    yield
    store.set(f"turn/{step}/{assignment.rank}/{assignment.side}", "done")


def _agreement(store: Store, scope: str, assignment: Assignment) -> Callable[[str, int], int]:
    """Return a function that returns rank 0's number on all ranks.

    The number goes through the store, because collectives may be broken.
    """

    def agree(what: str, mine: int) -> int:
        key = f"{scope}/{what}"
        if assignment.rank == 0:
            store.set(key, str(mine))
            return mine
        return int(store.get(key))

    return agree


def _say_farewell(store: Store, assignment: Assignment) -> None:
    """Wait until all ranks are done.

    A rank that leaves a live group early looks like a crash to the other ranks.
    """
    store.set(f"through/{assignment.side}/{assignment.rank}", "yes")
    keys = [f"through/{assignment.side}/{rank}" for rank in range(assignment.world_size)]
    store.wait(keys, timedelta(seconds=min(FAREWELL_S, assignment.limits.own_timeout_s("timed"))))


def kind_of(error: Exception) -> str:
    """Return the kind of an error, for the report of how the rank ended.

    The kind is `timeout`, `connection` (a lost peer), `fork` (CUDA in a forked process), NOT_REGISTERED (an unknown
    backend) or `error`.
    """
    # The kind is `timeout` for a wait.
    text = str(error).lower()
    if isinstance(error, UsageError):
        return NOT_REGISTERED
    if not isinstance(error, (RuntimeError, OSError)):  # a TypeError about an argument `timeout` is no wait
        return "error"
    if "cannot re-initialize cuda in forked subprocess" in text:
        return "fork"
    # NCCL's own error may say `Connection timed out` of a queue pair or a socket: that is a cause, not a wait.
    if not NCCL_ERROR.search(str(error)) and any(sign in text for sign in ("timed out", "timeout", "wait timeout")):
        return "timeout"
    if any(sign in text for sign in LOST_PEER):
        return "connection"
    return "error"


def line_of(error: Exception) -> str:
    """Return one line about an error. For an NCCL error, the line has NCCL's own description of the cause."""
    text = str(error).strip()
    if isinstance(error, UsageError):
        return text
    first, _, rest = text.partition("\n")
    _, found, last = rest.partition(NCCL_LAST_WORDS)
    words = [line.strip() for line in last.splitlines() if line.strip()] if found else []
    by_nccl = NCCL_ERROR.search(first)
    if words and by_nccl:
        what = by_nccl["what"].strip() or "error"  # `unhandled system error`
        return f"NCCL {what}: {words[0]}"[:500]
    return f"{type(error).__name__}: {first}"[:500]


if __name__ == "__main__":
    stop_with_parent(int(os.environ["PREFLIGHT_SUPERVISOR_PID"]), os.environ.get("PREFLIGHT_LIFELINE", ""))
    with open(sys.argv[1], encoding="utf-8") as file:
        main(decode(Assignment, json.load(file)), int(sys.argv[2]))
