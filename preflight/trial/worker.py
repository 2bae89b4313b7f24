"""`python -m preflight.trial.worker RUN_SPEC`: the process of a node's ranks, torchrun's agent and its forks.

`python -m preflight.trial.worker RUN_SPEC supervisor` is the supervisor of one rank, if forking it is not safe.
"""

from __future__ import annotations

import gc
import os
import sys

from preflight.system.processes import die_with_parent


def main() -> None:
    """Tie this process to its parent, then import torch, which the ranks of this node share."""
    die_with_parent(int(os.environ["PREFLIGHT_PARENT_PID"]))
    spec_path, *role = sys.argv[1:]
    try:
        os.getcwd()
    except FileNotFoundError:  # deleted meanwhile: oneMKL, and torch with it, can't be loaded there
        os.chdir(os.path.dirname(spec_path))
    gc.disable()  # looking for garbage among all that torch makes takes a tenth of its import, and there is none
    from preflight.trial.rank import agent  # noqa: PLC0415  imports torch, so only once death is arranged

    gc.freeze()
    gc.enable()
    if role:
        agent.supervise_rank(spec_path)
    else:
        agent.run_ranks(spec_path)


if __name__ == "__main__":
    main()
