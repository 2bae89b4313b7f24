"""Start the slow parts of a run first: the agent that imports torch, and the process that wakes the GPUs."""
# At the same time, preflight itself is loaded, and the node is probed.

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from preflight.errors import BrokenInstallation
from preflight.model.counters import Counts
from preflight.system.child import REAP_S, ChildProcess, start_program
from preflight.system.installed import module_exists
from preflight.system.kernel_queries import live_machine, own_limits
from preflight.system.nvml_keeper import XidWatch, watch_xids
from preflight.system.signals import held_back

# Every TCP store client and accept does a reverse look-up; a dead name server would cost 6 to 10 s each.
RES_OPTIONS = "timeout:1 attempts:1"
LEAST_CPU_S = 5  # preflight itself takes 1 s, the import of torch 1 to 4 s
WORKER = (sys.executable, "-m", "preflight.trial.worker")


@dataclass(slots=True)
class AgentProcess:
    """torchrun's agent, which imports torch and then waits for an order.

    `process` is None if there is no agent, and `problem` is then the reason.
    """

    # `log` is the descriptor of the agent's output.

    process: ChildProcess | None
    log: int  # a file in memory: until the agent gets an order, no folder may hold a file of this run
    problem: str = ""
    outside_before: Counts = field(default_factory=dict)  # the kernel's counters before the agent needed memory
    xids: XidWatch | None = None  # it wakes the GPUs, and keeps them awake

    def order(self, spec: str, environ: Mapping[str, str]) -> None:
        """Order the agent to run the ranks of the file `spec`, with the additional environment variables `environ`."""
        if self.process is not None:
            with contextlib.suppress(OSError):  # it has died already: whoever watches it finds out
                self.process.send({"spec": spec, "environ": dict(environ)})

    def save_log(self, path: str) -> None:
        """Write the agent's output to the file `path`. If the disk is full, the file stays incomplete."""
        with contextlib.suppress(OSError), open(path, "wb") as file:
            file.write(os.pread(self.log, os.fstat(self.log).st_size, 0))

    def end(self) -> None:
        """End the agent and the process that wakes the GPUs, if they still run."""
        if self.xids is not None:
            self.xids.end()
            self.xids = None
        if self.process is not None:
            self.process.kill_group()
            self.process.reap_group(time.monotonic() + REAP_S)
            self.process.close()
            self.process = None
        if self.log >= 0:
            os.close(self.log)
            self.log = -1


@contextlib.contextmanager
def started_agent(environ: Mapping[str, str], wakes_gpus: bool = False) -> Iterator[AgentProcess]:
    """Start the agent for the duration of the block. If torch is not installed, the agent has no process.

    Raise BrokenInstallation if the limit of CPU time (`ulimit -t`) is too low to load torch.
    """
    # If `wakes_gpus` is true, all GPUs of this machine stay awake until the end of the block.
    if (cpu_s := own_limits().get("cpu_s", LEAST_CPU_S)) < LEAST_CPU_S:
        raise BrokenInstallation(
            f"`ulimit -t` allows only {cpu_s} s of CPU time, but torch needs more to load; run `ulimit -t unlimited`, "
            f"then rerun"
        )
    agent = AgentProcess(None, -1, "torch is not installed")
    try:
        with held_back():
            has_torch = module_exists("torch")
            agent = _start(environ) if has_torch else agent
            if wakes_gpus:
                with contextlib.suppress(OSError, MemoryError):  # no process: the probe of the node finds the same
                    agent.xids = watch_xids()
            if has_torch:
                agent.outside_before = _counted()
        yield agent
    finally:
        with held_back():
            agent.end()


def _start(environ: Mapping[str, str]) -> AgentProcess:
    log = os.memfd_create("agent.log")
    try:
        return AgentProcess(start_program(WORKER, dict(environ) | start_environment(os.getpid()), log), log)
    except OSError as error:
        return AgentProcess(None, log, f"{sys.executable} could not be started: {error.strerror}")


def _counted() -> Counts:
    from preflight.facts.counters import probe_outside_events  # noqa: PLC0415  it loads while the agent starts

    return probe_outside_events(live_machine())


def start_environment(launcher_pid: int) -> dict[str, str]:
    """Return the variables that the agent needs to import torch, in addition to the user's environment.

    The agent ends when the process `launcher_pid` ends.
    """
    return {
        "PREFLIGHT_PARENT_PID": str(launcher_pid),
        "OMP_NUM_THREADS": "1",  # torch must start no thread before a supervisor forks
        "OPENBLAS_NUM_THREADS": "1",  # which goes before the one above where a site sets it
        "PYTHONSAFEPATH": "1",  # a folder `torch` where the user stands must not be imported (Python 3.11 and later)
        "RES_OPTIONS": RES_OPTIONS,
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
