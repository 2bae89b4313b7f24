"""Everything that is worth trying with NCCL on one node, and everything that is not, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from preflight.model.facts import NodeFacts
from preflight.model.trial import DEFAULT, Candidate, LeftOut, Setting, TrialResult
from preflight.plan.candidates import nccl_candidates
from preflight.plan.duel import is_sound
from preflight.plan.ground import ground_of
from preflight.plan.settings.all import conservative_settings
from preflight.plan.speed import speed_candidates


@dataclass(frozen=True, slots=True)
class NcclPlan:
    """The candidates for a default that works, the settings for one that fails, and what is left out."""

    candidates: tuple[Candidate, ...]
    settings: tuple[Setting, ...]
    left_out: tuple[LeftOut, ...]  # of the candidates
    settings_left_out: tuple[LeftOut, ...] = ()

    def left_out_of(self, trials: Sequence[TrialResult]) -> tuple[LeftOut, ...]:
        """Return what was left out of the search that took place: settings only where the default failed."""
        searched = any(trial.candidate == DEFAULT and not is_sound(trial) for trial in trials)
        return (*self.left_out, *self.settings_left_out) if searched else self.left_out


def plan_nccl(
    node: NodeFacts, gpus: tuple[int, ...], inherited: tuple[tuple[str, str], ...], *, for_speed: bool
) -> NcclPlan:
    """Return the plan for these GPUs (nvml_index); candidates for speed only where the profile has time for them."""
    ground = ground_of(node, gpus, inherited)
    always, unread = nccl_candidates(inherited)
    settings, unfit = conservative_settings(ground)
    fast, slow = speed_candidates(ground) if for_speed else ((), ())
    return NcclPlan((*always, *fast), settings, (*unread, *slow), unfit)
