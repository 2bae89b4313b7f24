"""`python -m preflight.rank.agent ...`: torchrun on this node alone, without a listening port.

Every rendezvous that torch brings opens a store on all interfaces, and its c10d one unpickles what it reads from there.
This one is a store inside this process, enough to number the ranks of one node; ranks meet in stores of our own.
The handler is registered here, not by an entry point, which would load into every torchrun of the user's environment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import torch.distributed.run as torchrun
from torch._C._distributed_c10d import HashStore
from torch.distributed.elastic import rendezvous
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters
from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry

from preflight.system.processes import die_with_parent

RDZV_BACKEND = "preflight"


class AloneRendezvous(RendezvousHandler):
    """Agree with nobody: this agent is node 0 of 1."""

    use_agent_store = False

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._parameters = parameters

    def get_backend(self) -> str:
        return str(self._parameters.backend)

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
        return str(self._parameters.run_id)

    def shutdown(self) -> bool:
        return True


def main() -> None:
    """Run torchrun with its arguments; on a dead worker, write which one and how to the events FIFO and exit 1."""
    die_with_parent(int(os.environ["PREFLIGHT_LAUNCHER_PID"]))
    os.environ["PREFLIGHT_AGENT_PID"] = str(os.getpid())
    rendezvous_handler_registry.register(RDZV_BACKEND, AloneRendezvous)
    try:
        torchrun.main(sys.argv[1:])
    except ChildFailedError as error:
        rank, exitcode = first_to_die({rank: (f.exitcode, f.timestamp) for rank, f in error.failures.items()})
        _tell({"event": "supervisor_died", "rank": rank, "exitcode": exitcode})
        sys.exit(1)


def first_to_die(failures: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return rank and exit code of the failure that came first: torchrun ends the other ranks with SIGTERM."""
    rank = min(failures, key=lambda rank: (failures[rank][0] == -signal.SIGTERM, failures[rank][1]))
    return rank, failures[rank][0]


def _tell(event: dict[str, Any]) -> None:
    with open(os.environ["PREFLIGHT_EVENTS"], "wb", buffering=0) as fifo:
        # The line break in front ends what a conductor that was killed while writing left behind.
        fifo.write(b"\n" + json.dumps(event).encode() + b"\n")


if __name__ == "__main__":
    main()
