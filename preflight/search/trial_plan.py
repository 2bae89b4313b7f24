"""Plan what the test runs measure, and how often, for one node and for several nodes."""

from __future__ import annotations

from typing import Protocol

from preflight.model.collective import Collective
from preflight.model.profile import Profile
from preflight.model.run_spec import TrialPlan
from preflight.model.trial import Candidate
from preflight.search import profiles
from preflight.search.settings.duel import DUEL_TURNS, decision_sizes


class Wanted(Protocol):
    """The options of a run that determine its test runs. A run on several nodes uses the options of node 0."""

    @property
    def profile(self) -> Profile:
        """Return the profile of the run."""

    @property
    def wanted_collectives(self) -> tuple[Collective, ...]:
        """Return the collectives to time."""

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Return the message sizes in bytes, or () if the profile's sizes apply."""

    @property
    def stage_limit(self) -> float | None:
        """Return the time limit in seconds for every stage, or None if each stage has its own limit."""

    @property
    def default_only(self) -> bool:
        """Return whether only the default settings are measured."""


def trial_plan(
    wanted: Wanted, candidates: tuple[Candidate, ...], backend: str, sizes: tuple[int, ...], *,
    on_gpus: bool, cpu_path: bool, nodes: int = 1, ranks_per_cpu: float = 1.0,
) -> TrialPlan:  # fmt: skip
    """Return the plan for testing the configurations `candidates` with messages of the given sizes in bytes.

    `ranks_per_cpu` is the number of ranks that compute on each processor.
    """
    effort = wanted.profile.effort
    return TrialPlan(
        candidates=candidates,
        limits=profiles.stage_limits(backend, wanted.stage_limit, nodes, ranks_per_cpu),
        screen_all=effort.for_speed,
        measures=profiles.trial_measures(wanted.profile, sizes, wanted.wanted_collectives),
        duel_measures=profiles.measures(profiles.DUEL_TIMING, decision_sizes(sizes, cpu_path=cpu_path)),
        duel_turns=DUEL_TURNS,
        control_runs=0 if wanted.default_only else effort.runs_each,
        on_gpus=on_gpus,
    )
