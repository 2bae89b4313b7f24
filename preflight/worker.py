"""`python -m preflight.worker RUN_SPEC`: the process that torchrun starts for every rank, a rank supervisor."""

from __future__ import annotations

import os
import sys

from preflight.system.processes import die_with_parent


def main() -> None:
    """Tie this process to torchrun's agent, then import torch and supervise one rank."""
    die_with_parent(int(os.environ["PREFLIGHT_AGENT_PID"]))
    from preflight.rank.supervisor import supervise  # noqa: PLC0415  imports torch, so only once death is arranged

    supervise(sys.argv[1])


if __name__ == "__main__":
    main()
