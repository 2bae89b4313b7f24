"""`python -m preflight.worker RUN_SPEC`: the process that torchrun starts for every rank, a rank supervisor."""

from __future__ import annotations

import gc
import json
import os
import sys

from preflight.system.processes import die_with_parent


def main() -> None:
    """Tie this process to torchrun's agent, then import torch and supervise one rank."""
    die_with_parent(int(os.environ["PREFLIGHT_AGENT_PID"]))
    gc.disable()  # looking for garbage among all that torch makes takes a tenth of its import, and there is none
    from preflight.rank.supervisor import supervise  # noqa: PLC0415  imports torch, so only once death is arranged

    gc.freeze()
    gc.enable()
    try:
        supervise(sys.argv[1])
    except Exception as error:
        _tell_why(error)
        raise


def _tell_why(error: Exception) -> None:
    """Tell the launcher through the FIFO, which takes it even where the disk that holds the logs is full."""
    why = f"{type(error).__name__}: {error}"[:500]
    event = {"event": "supervisor_failed", "rank": int(os.environ["RANK"]), "why": why}
    with open(os.environ["PREFLIGHT_EVENTS"], "wb", buffering=0) as fifo:
        fifo.write(json.dumps(event).encode() + b"\n")


if __name__ == "__main__":
    main()
