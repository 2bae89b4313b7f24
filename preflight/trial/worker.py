"""`python -m preflight.trial.worker`: the process that becomes torchrun's agent and forks this node's ranks.

With the argument RUN_SPEC, the process is the agent (supervisor) of one rank.
"""
# The process imports torch and then reads its order from standard input. The order is a line of JSON with the path of
# the specification and with variables. If no order comes, the process ends. RUN_SPEC is used if a fork is not safe.

from __future__ import annotations

import gc
import json
import os
import sys

from preflight.system.processes import die_with_parent


def main() -> None:
    """Import torch for the ranks of this node, then wait for the launcher's order and carry it out.

    This process dies with its parent.
    """
    die_with_parent(int(os.environ["PREFLIGHT_PARENT_PID"]))
    try:
        os.getcwd()
    except FileNotFoundError:  # deleted meanwhile: oneMKL, and torch with it, can't be loaded there
        os.chdir("/")
    gc.disable()  # looking for garbage among all that torch makes takes a tenth of its import, and there is none
    from preflight.trial.rank import agent  # noqa: PLC0415  imports torch, so only once death is arranged

    gc.freeze()
    gc.enable()
    if sys.argv[1:]:
        agent.supervise_rank(sys.argv[1])
    elif line := sys.stdin.readline():
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # the ranks read nothing
        os.close(nothing)
        order = json.loads(line)
        os.environ.update(order["environ"])
        agent.run_ranks(order["spec"])


if __name__ == "__main__":
    main()
