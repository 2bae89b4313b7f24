"""What preflight recommends."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.facts import Gap


@dataclass(frozen=True, slots=True)
class NodeEnv:
    """What one node sets, where nodes differ: interfaces have other names."""

    host: str
    node_rank: int
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """Settings to source, variables to remove, timeouts and GPUs; empty where nothing need change.

    `evidence` holds, for every name in `env` and `unset`, the trial that earned the line and the number it is
    compared with. Names in `one_node_only` were learnt on one node and must not act on several.
    """

    env: tuple[tuple[str, str], ...]
    unset: tuple[str, ...]
    evidence: tuple[tuple[str, str], ...]
    one_node_only: tuple[str, ...]
    pg_timeout_s: int | Gap
    init_timeout_s: int | Gap
    gpus: tuple[str, ...]  # uuids, where `--gpus` named a strict subset
    reason: str  # one sentence: why this, or why nothing
    gpu_env: tuple[tuple[str, str], ...] = ()  # gives the job these GPUs; no trial earned it
    timeout_env: tuple[tuple[str, str], ...] = ()  # says the timeouts to who asks; changes nothing that NCCL does
    timeout_reason: str = ""  # why they are what they are
    nodes: tuple[NodeEnv, ...] = ()  # several nodes that do not set the same: `env` is then this node's own
