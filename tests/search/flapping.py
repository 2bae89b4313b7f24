"""Machines whose fault comes and goes by itself, and what a search makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from preflight.model.profile import Profile
from preflight.model.trial import Candidate, Outcome, RankEnd, Scope, Setting, TrialResult
from preflight.search.settings.control import Proof, proof_of
from preflight.search.settings.steps import Known
from tests.node_facts import trial
from tests.search.searching import Searched, search

ENDINGS = (Outcome.HANG, Outcome.CRASH, Outcome.WRONG_DATA, Outcome.INIT_ERROR)
SETTINGS = tuple(
    Setting(f"NCCL_S{i}", ((f"NCCL_S{i}", "1"),), ("p2p",) if i > 6 else ("ib",), Scope.ANYWHERE) for i in range(9)
)
Rhythm = Callable[[int, Random], bool]  # of the number of the trial: does the fault come?


def by_chance(share: float) -> Rhythm:
    return lambda _, random: random.random() < share


RHYTHMS: dict[str, Rhythm] = {
    "every second": lambda number, _: number % 2 == 0,
    "every third": lambda number, _: number % 3 == 0,
    **{f"{percent}% by chance": by_chance(percent / 100) for percent in (10, 20, 30, 40, 50)},
}


@dataclass
class Flapping:
    """A machine that fails as its rhythm says, whatever is set."""

    rhythm: Rhythm
    ending: Outcome
    random: Random
    starts_at: int = 0
    number: int = 0

    def run(self, candidate: Candidate) -> TrialResult:
        number, self.number = self.number + self.starts_at, self.number + 1
        # The first trial is the default's: one that works is no case for a search.
        if number > self.starts_at and not self.rhythm(number, self.random):
            return trial(candidate.name, env=candidate.env, reason=candidate.reason)
        return failed(candidate, self.ending)


def failed(candidate: Candidate, ending: Outcome) -> TrialResult:
    """Return a trial of two ranks that ended so."""
    ends = tuple(RankEnd(rank, "killed", "first", "") for rank in range(2))
    return trial(candidate.name, ending, env=candidate.env, reason=candidate.reason, ranks=ends, culprits=())


def simulate(rhythm: Rhythm, profile: Profile, seed: int) -> Searched:
    """Search on a machine of this rhythm to the end."""
    random = Random(seed)
    machine = Flapping(rhythm, random.choice(ENDINGS), random, starts_at=random.randrange(6))
    return search(SETTINGS, machine.run, known=Known(seed=seed), runs_each=profile.effort.runs_each)


def is_false_cure(done: Searched) -> bool:
    """Tell whether settings would be recommended."""
    return proof_of(done.control, done.results) in (Proof.PROVED, Proof.PROVISIONAL)
