"""Everything that is worth trying with NCCL on one node, and everything that is not, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.facts import NodeFacts
from preflight.model.trial import Candidate, LeftOut, Setting
from preflight.plan.candidates import nccl_candidates
from preflight.plan.ground import ground_of
from preflight.plan.settings.all import conservative_settings
from preflight.plan.speed import speed_candidates


@dataclass(frozen=True, slots=True)
class NcclPlan:
    """The candidates for a default that works, the settings for one that fails, and what is left out."""

    candidates: tuple[Candidate, ...]
    settings: tuple[Setting, ...]
    left_out: tuple[LeftOut, ...]


def plan_nccl(
    node: NodeFacts, gpus: tuple[int, ...], inherited: tuple[tuple[str, str], ...], *, for_speed: bool
) -> NcclPlan:
    """Return the plan for these GPUs (nvml_index); candidates for speed only where the profile has time for them."""
    ground = ground_of(node, gpus, inherited)
    always, unread = nccl_candidates(inherited)
    settings, unfit = conservative_settings(ground)
    fast, slow = speed_candidates(ground) if for_speed else ((), ())
    return NcclPlan((*always, *fast), settings, (*unread, *slow, *unfit))
