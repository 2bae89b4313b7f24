"""The torchrun agent of one node. The agent imports torch once, and forks one supervisor process per rank."""
# The usual agent of torchrun starts one interpreter per rank, and each interpreter imports torch again, which is slow.
# The ranks get the same environment from both agents. The rendezvous here is a store inside the process, because
# torch's own rendezvous opens a store on all interfaces and unpickles data from this store.

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from typing import Any

from torch._C._distributed_c10d import HashStore
from torch.distributed.elastic import rendezvous
from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousHandler

from preflight.system import processes
from preflight.system.child import ChildProcess, Parent, fork_child
from preflight.trial.rank.supervisor import read_spec, supervise

RUN_ID = "preflight"
MONITOR_S = 0.1
LAUNCHER_S = 1.0  # for the launcher to end everything, once it knows
DIE_S = 2.0  # after SIGTERM; the kernel ends trial children with their supervisor


class AloneRendezvous(RendezvousHandler):
    """A torchrun rendezvous without other nodes: this agent is node 0 of 1."""

    use_agent_store = False

    def get_backend(self) -> str:
        return "preflight"

    def next_rendezvous(self) -> Any:
        if not hasattr(rendezvous, "RendezvousInfo"):  # torch < 2.4
            return HashStore(), 0, 1
        bootstrap = rendezvous.RendezvousStoreInfo("127.0.0.1", 0)
        return rendezvous.RendezvousInfo(HashStore(), 0, 1, bootstrap)

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return RUN_ID

    def shutdown(self) -> bool:
        return True


class ForkingAgent(SimpleElasticAgent):
    """torchrun's agent with forked workers, which run `supervise_rank`."""

    def __init__(self, spec: WorkerSpec, spec_path: str) -> None:
        super().__init__(spec)
        self._spec_path = spec_path
        self._running: list[tuple[ChildProcess, Worker]] = []
        self._failures: dict[int, ProcessFailure] = {}  # by rank

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        pids = {}
        for worker in worker_group.workers:
            child = _start_supervisor(self._spec_path, worker.global_rank, _environment(worker, worker_group))
            self._running.append((child, worker))
            pids[worker.local_rank] = child.pid
        return pids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self._reap()
        if self._failures:
            return RunResult(WorkerState.FAILED, failures=self._failures)
        if self._running:
            return RunResult(WorkerState.HEALTHY)
        return RunResult(WorkerState.SUCCEEDED, return_values={w.global_rank: None for w in worker_group.workers})

    def _reap(self) -> None:
        ended = [each for each in self._running if each[0].reap()]
        for child, worker in ended:
            self._running.remove((child, worker))
            if child.exitcode:
                failure = ProcessFailure(worker.local_rank, child.pid, child.exitcode, os.devnull)
                self._failures[worker.global_rank] = failure

    def _stop_workers(self, worker_group: WorkerGroup, *_: Any, **__: Any) -> None:
        """Report to the launcher which rank died first, so that the launcher ends the other ranks.

        Before that, the launcher records the ranks' files in /dev/shm. Ranks that still run after LAUNCHER_S seconds
        are ended here.
        """
        rank, exitcode = first_to_die({rank: (f.exitcode, f.timestamp) for rank, f in self._failures.items()})
        _tell({"event": "supervisor_died", "rank": rank, "exitcode": exitcode})
        time.sleep(LAUNCHER_S)
        self._shutdown()

    def _shutdown(self, *_: Any, **__: Any) -> None:
        for how in (signal.SIGTERM, signal.SIGKILL):
            for each in self._running:
                each[0].signal(how)
            until = time.monotonic() + DIE_S
            while self._running and time.monotonic() < until:
                self._reap()
                time.sleep(0.01)


def run_ranks(spec_path: str) -> None:
    """Run the ranks of the specification in the file `spec_path`.

    If a rank dies, the launcher is informed, and the process ends with exit code 1.
    """
    workers = WorkerSpec(
        role="default",
        local_world_size=read_spec(spec_path).place.local_size,
        rdzv_handler=AloneRendezvous(),
        entrypoint=sys.executable,
        max_restarts=0,
        monitor_interval=MONITOR_S,
    )
    if ForkingAgent(workers, spec_path).run().is_failed():
        sys.exit(1)


def first_to_die(failures: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return the rank and the exit code of the first failure in `failures`.

    Ranks that died by SIGTERM (from torchrun) come last.
    """
    rank = min(failures, key=lambda rank: (failures[rank][0] == -signal.SIGTERM, failures[rank][1]))
    return rank, failures[rank][0]


def _start_supervisor(spec_path: str, rank: int, environ: dict[str, str]) -> ChildProcess:
    """Fork the per-rank agent of the rank `rank`.

    If this process has more than one thread, the child executes a new interpreter.
    """
    agent, is_sound = os.getpid(), processes.thread_count() == 1

    def be_supervisor(_: Parent) -> None:
        try:
            processes.name_process(f"preflight-r{rank}")
            os.setsid()
            os.environ.update(environ)
            path = os.path.join(os.path.dirname(spec_path), "torchrun", f"rank{rank}.log")
            log = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            if not is_sound:
                os.environ["PREFLIGHT_PARENT_PID"] = str(agent)
                os.execv(sys.executable, [sys.executable, "-m", "preflight.trial.worker", spec_path])
            supervise_rank(spec_path)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            sys.stderr.flush()

    return fork_child(be_supervisor, is_heard=False, keeps_signals=True)


def supervise_rank(spec_path: str) -> None:
    """Supervise this process's rank by the specification in the file `spec_path`.

    If an error occurs, send the error to the launcher, and then raise the error.
    """
    try:
        supervise(spec_path)
    except Exception as error:
        _tell({"event": "supervisor_failed", "rank": int(os.environ["RANK"]), "why": _why(error)})
        raise


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def _environment(worker: Worker, group: WorkerGroup) -> dict[str, str]:
    """Return the variables that torchrun gives a worker.

    With these variables, test runs have the same environment as a job.
    """
    spec = group.spec
    return {
        "RANK": str(worker.global_rank),
        "LOCAL_RANK": str(worker.local_rank),
        "WORLD_SIZE": str(worker.world_size),
        "LOCAL_WORLD_SIZE": str(spec.local_world_size),
        "GROUP_RANK": str(group.group_rank),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": str(worker.role_rank),
        "ROLE_NAME": spec.role,
        "ROLE_WORLD_SIZE": str(worker.role_world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": RUN_ID,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }


def _tell(event: dict[str, Any]) -> None:
    """Send an event to the launcher through the FIFO.

    The FIFO works even if the disk with the logs is full.
    """
    with open(os.environ["PREFLIGHT_EVENTS"], "wb", buffering=0) as fifo:
        # The line break in front ends what a conductor that was killed while writing left behind.
        fifo.write(b"\n" + json.dumps(event).encode() + b"\n")
