"""Trials that were repeated: does the failure follow the settings, or does it come and go by itself?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from preflight.model.trial import Outcome


@dataclass(frozen=True, slots=True)
class Rerun:
    """One more try of a trial's settings, in fresh processes, up to the size at which trials had failed."""

    candidate: str
    env: tuple[tuple[str, str], ...]
    outcome: Outcome
    problem: str  # empty where it worked
    duration_s: float
    control: str = ""  # the candidate that alternates with the default; "" where one failure was repeated
    runs_each: int = 0  # of a control: how often each of the two was to run
    failed_in: str = ""  # as in TrialResult
    culprits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Control:
    """All that was repeated in a run, and the settings that are to cure a default that fails."""

    seed: int = 0  # of the order in which the default and the settings took turns
    wanted_each: int = 0  # runs of either that the profile asks for
    chosen: str = ""  # the candidate that is to cure the default; "" where there is none
    env: tuple[tuple[str, str], ...] = ()  # what it sets
    reruns: tuple[Rerun, ...] = ()

    def turns(self, control: str) -> tuple[Rerun, ...]:
        """Return the reruns of a control in their order; those that were cut short are none."""
        return tuple(each for each in self.reruns if each.control == control and each.outcome is not Outcome.SKIPPED)


NO_CONTROL = Control()


def odds(one: int, other: int) -> int:
    """Return in how many orders so many failures and successes fall: 1 in that many is luck that looks like a cure.

    Holds for a fault that takes no notice of the settings, since the order was drawn by chance.
    """
    return math.comb(one + other, one)
