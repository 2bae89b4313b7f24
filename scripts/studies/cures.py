"""Search for a cure on simulated machines: cures that are found, false cures, and faults that nobody saw come and go.

A trial that fails takes 20 s, one that works 7 s, and the search has 840 s: what `standard` leaves after the GPU tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from preflight.model.profile import Profile
from preflight.model.trial import Candidate, Outcome, Scope, TrialResult, odds
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.search.settings.control import intermittent, is_cure
from preflight.search.settings.steps import Known
from tests.node_facts import trial
from tests.search.flapping import ENDINGS, RHYTHMS, SETTINGS, failed
from tests.search.searching import Searched, search

EACH = Profile.STANDARD.effort.runs_each
LEFT_S, FAILS_S, WORKS_S = 840.0, 20.0, 7.0
CURE = SETTINGS[8].env[0]
SHARES = {1.0: 0.99, 0.98: 0.97, 0.95: 0.95, 0.9: 0.9, 0.8: 0.8}  # of the default's runs that fail: found at least
MOST_STEADY = 0.05
WITHOUT_HALVES = (
    DEFAULT_CANDIDATE,
    *(Candidate(f"candidate {each.name}", each.env, "", Scope.ANYWHERE) for each in SETTINGS),
)
Fault = Callable[["Machine", Candidate], bool]


@dataclass
class Machine:
    """A machine with a clock, whose first trial fails: one that works is no case for a search."""

    fault: Fault
    random: Random
    fails_s: float = FAILS_S
    ending: Outcome = Outcome.HANG
    now_s: float = 0.0
    number: int = 0  # of the trial
    is_bad: bool = True  # of bursts()

    def run(self, candidate: Candidate) -> TrialResult:
        ended = trial(candidate.name, env=candidate.env, reason=candidate.reason, duration_s=WORKS_S)
        if self.fault(self, candidate) or not self.number:
            ended = replace(failed(candidate, self.ending), duration_s=self.fails_s)
        self.now_s, self.number = self.now_s + ended.duration_s, self.number + 1
        return ended

    def searched(self, seed: int, *, by_halves: bool = True) -> Searched:
        """Search to the end, for as long as there is time."""
        known, candidates = Known(seed=seed), (DEFAULT_CANDIDATE,) if by_halves else WITHOUT_HALVES
        settings = SETTINGS if by_halves else ()
        left_s = lambda: LEFT_S - self.now_s  # noqa: E731
        return search(settings, self.run, candidates, known=known, runs_each=EACH, left_s=left_s)


def by_number(rhythm: Callable[[int, Random], bool], machine: Machine, _: Candidate) -> bool:
    return rhythm(machine.number, machine.random)


def burst(fails: int, works: int, machine: Machine, _: Candidate) -> bool:
    """Fail so many trials in a row; then work."""
    return machine.number % (fails + works) < fails


def window(fails_s: float, works_s: float, machine: Machine, _: Candidate) -> bool:
    """Fail for so many seconds of the clock; then work."""
    return machine.now_s % (fails_s + works_s) < fails_s


def bursts(fails: int, works: int, machine: Machine, _: Candidate) -> bool:
    """Fail for so many trials on average, then work for so many; how long each lasts is chance."""
    if machine.number:
        machine.is_bad ^= machine.random.random() < 1 / (fails if machine.is_bad else works)
    return machine.is_bad


def uncured(share: float, machine: Machine, candidate: Candidate) -> bool:
    """Fail in a share of all trials without the setting that is the cure."""
    return CURE not in candidate.env and machine.random.random() < share


FAULTS: dict[str, Fault] = {
    **{name: partial(by_number, rhythm) for name, rhythm in RHYTHMS.items()},
    "first 2 trials": partial(burst, 2, 10**9),
    "first 4 trials": partial(burst, 4, 10**9),
    "fails 3, works 10": partial(burst, 3, 10),
    "fails 5, works 10": partial(burst, 5, 10),
    "fails 60 s of 120 s": partial(window, 60.0, 60.0),
    "fails 30 s of 330 s": partial(window, 30.0, 300.0),
    "bursts of 3 of 6": partial(bursts, 3, 3),
}
# A fault that stays for about as long as its default settings are repeated looks like one that stays for good. The
# page calls neither of them steady: it says how long the tries took, and that a fault that goes away later looks alike.
LONG_FAULTS: dict[str, Fault] = {
    "fails 300 s of 600 s": partial(window, 300.0, 300.0),
    "bursts of 5 of 15": partial(bursts, 5, 10),
    "bursts of 10 of 20": partial(bursts, 10, 10),
}


def study(is_small: bool) -> Iterator[tuple[str, bool]]:
    """Yield each rhythm with its false cures and how often it was not seen to go, and how often a cure is found."""
    runs = 30 if is_small else 1400
    for name, fault in (FAULTS | LONG_FAULTS).items():
        false, steady = 0, 0
        for seed in range(runs):
            random = Random(f"{name} {seed}")
            done = Machine(fault, random, ending=random.choice(ENDINGS)).searched(seed)
            false += is_cure(done.control, done.results)
            steady += not intermittent(done.results, done.control.reruns)
        text = f"{name:<20} {false:>3} false cures, {steady:>3} not seen to come and go, of {runs}"
        is_short = steady <= most(runs, MOST_STEADY) or name in LONG_FAULTS
        yield text, false <= most(runs, 1 / odds(EACH, EACH)) and is_short
    for words, fails_s, by_halves in (
        ("crashes after 7 s", WORKS_S, True),
        ("hangs for 20 s", FAILS_S, True),
        ("crashes, and settings are tried one by one", WORKS_S, False),
    ):
        for share, least in SHARES.items():
            found, pairs = 0, 0
            for seed in range(runs):
                machine = Machine(partial(uncured, share), Random(f"{share} {seed}"), fails_s)
                done = machine.searched(seed, by_halves=by_halves)
                found += is_cure(done.control, done.results) and CURE in done.control.env
                pairs += len(done.control.turns(done.control.chosen)) // 2
            text = (
                f"fails in {share:.0%} without its cure, {words}: found in {found} of {runs}, {pairs / runs:.1f} pairs"
            )
            yield text, runs - found <= most(runs, 1 - least)


def most(runs: int, share: float) -> float:
    """Return how many of the runs may be so if the share is promised: chance may add three standard deviations."""
    return runs * share + 3 * math.sqrt(runs * share * (1 - share))
