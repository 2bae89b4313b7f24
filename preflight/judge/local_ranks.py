"""How many ranks a node has, or would have."""

from __future__ import annotations

import math

from preflight.judge.check import Case
from preflight.model.facts import Gap, NodeFacts


def local_ranks_of(node: NodeFacts, case: Case) -> int:
    """Return the ranks on this node; for `probe`, which starts none, one for each GPU."""
    if case.world_size:
        return math.ceil(case.world_size / max(1, len(case.nodes)))
    return 0 if isinstance(node.gpus, Gap) else len(node.gpus)
