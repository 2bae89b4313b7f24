"""Decide whether a failure depends on the settings, or comes and goes.

The functions do no I/O.
"""
# An A/B test (control) confirms a workaround. The test runs the default settings n times and the workaround n times, in
# a random order. If one run with the workaround fails, the workaround is rejected. Otherwise, Fisher's exact test
# decides: if a fault does not depend on the settings, all f failures hit the default settings in at most C(n, f) of
# C(2n, f) cases. If all n runs with the default settings fail, this probability is 1 of 6 for n = 2, 1 of 70 for n = 4,
# and 1 of 924 for n = 6. If the default settings fail only in some runs, further blocks of n and n runs follow. The
# probabilities of the blocks multiply. The number of settings in the search needs no correction, because only one
# configuration gets an A/B test, and only the runs of this test count. If no workaround is confirmed, a fault is
# constant if all test runs with the same settings fail in the same way and at the same place. If these test runs end
# differently, the fault is intermittent. The rank that is named, the text of its error, and the number of the failed
# call are not compared.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from math import comb
from random import Random

from preflight.model.bound import Bound
from preflight.model.profile import Profile
from preflight.model.trial import (
    DEFAULT,
    FAILED,
    IN_START,
    REPEATED,
    Candidate,
    Control,
    Outcome,
    Rerun,
    TrialResult,
    odds,
)

PROVISIONAL_TEXT = "confirm this result with --profile standard"
PROVED_ODDS = Bound(
    odds(Profile.STANDARD.effort.runs_each, Profile.STANDARD.effort.runs_each), "to 1 as the least odds against chance",
    "four runs with the default settings and four with the workaround reach these odds; with lower odds, preflight "
    "asks for a confirmation",
    "scripts/studies/cures.py",
    "too low: an intermittent fault gets a useless workaround; too high: preflight asks to confirm a good workaround",
)  # fmt: skip
Env = tuple[tuple[str, str], ...]


class Proof(Enum):
    """How well an A/B test proves that a workaround works."""

    PROVED = "proved"
    PROVISIONAL = "provisional"  # the runs agree, but chance could still explain them
    INTERMITTENT = "intermittent"  # the same settings ended differently, and chance explains what the control shows
    OPEN = "open"  # there was no time for the control


class Way(Enum):
    """How a test run ended, in categories that can be compared."""

    WORKS = "worked"
    HANG = "hung"
    ERROR = "failed with an error"
    WRONG_DATA = "gave wrong data"


@dataclass(frozen=True, slots=True)
class Tally:
    """The results of all test runs with the same settings, in order."""

    candidate: str
    env: Env
    ways: tuple[Way, ...]
    problems: tuple[str, ...]  # of those that failed
    places: tuple[str, ...]  # in what each failed, if known: the start, or a collective

    @property
    def failed(self) -> int:
        return sum(way is not Way.WORKS for way in self.ways)

    @property
    def comes_and_goes(self) -> bool:
        return 0 < self.failed < len(self.ways)

    @property
    def is_steady(self) -> bool:
        """Return whether all test runs worked, or all failed in the same way and at the same place."""
        return len(set(self.ways)) < 2 and len(set(filter(None, self.places))) < 2

    def text(self) -> str:
        """Return the results as text, such as `the default settings hung in 1 of 3 tries`."""
        who = "the default settings" if self.candidate == DEFAULT else f"trial '{self.candidate}'"
        tries = f"of {len(self.ways)} tr{'y' if len(self.ways) == 1 else 'ies'}"
        places = len(set(filter(None, self.places)))
        ends = [
            f"{way.value}{place_text(place) if places > 1 else ''}"
            for way, place in zip(self.ways, self.places, strict=True)
            if way is not Way.WORKS or not self.failed
        ]
        return f"{who} {' and '.join(f'{each} in {ends.count(each)}' for each in dict.fromkeys(ends))} {tries}"


def place_text(place: str) -> str:
    """Return the place of a failure as text, such as ` at the start` or ` during all_reduce`, or "" if unknown."""
    return {"": "", IN_START: " at the start"}.get(place, f" during {place}")


def way_of(outcome: Outcome) -> Way | None:
    """Return how a test run with this outcome ended, or None if the test run was skipped."""
    match outcome:
        case Outcome.OK | Outcome.NO_EFFECT:
            return Way.WORKS
        case Outcome.HANG:
            return Way.HANG
        case Outcome.CRASH | Outcome.INIT_ERROR:  # a rank that dies early may take others in the start
            return Way.ERROR
        case Outcome.WRONG_DATA:
            return Way.WRONG_DATA
        case Outcome.SKIPPED:
            return None


def tallies(results: Sequence[TrialResult], reruns: Sequence[Rerun]) -> tuple[Tally, ...]:
    """Return how often each set of settings worked and failed in `results` and `reruns`.

    If a search tested the same settings twice, only the later test run counts.
    """
    own = [each for each in results if not each.candidate.startswith(REPEATED)]
    last = {tuple(sorted(each.env)) or i: each for i, each in enumerate(own)}
    tries: dict[object, list[tuple[TrialResult | Rerun, Way]]] = {}
    tried: list[TrialResult | Rerun] = [*last.values(), *reruns]
    for each in tried:
        if way := _way(each):
            tries.setdefault(_key(each.candidate, each.env), []).append((each, way))
    return tuple(_tally(each) for each in tries.values())


def _tally(tries: Sequence[tuple[TrialResult | Rerun, Way]]) -> Tally:
    first = tries[0][0]
    problems = tuple(each.problem or way.value for each, way in tries if way is not Way.WORKS)
    places = tuple("" if way is Way.WRONG_DATA else each.failed_in for each, way in tries)
    return Tally(first.candidate, first.env, tuple(way for _, way in tries), problems, places)


def _way(tried: TrialResult | Rerun) -> Way | None:
    way = way_of(tried.outcome)
    if way is Way.WORKS and isinstance(tried, TrialResult) and not all(each.verified for each in tried.results):
        return Way.WRONG_DATA
    return way


def intermittent(results: Sequence[TrialResult], reruns: Sequence[Rerun]) -> tuple[Tally, ...]:
    """Return the settings whose test runs ended in different ways. The default settings come first."""
    return tuple(
        sorted((each for each in tallies(results, reruns) if not each.is_steady), key=lambda t: t.candidate != DEFAULT)
    )


def proof_of(control: Control, results: Sequence[TrialResult]) -> Proof:
    """Return how well the A/B test in `control` proves the workaround."""
    # If the default settings sometimes worked, the test must reach the odds that the profile requires. If the default
    # settings always failed, one run is enough.
    if not (control.chosen and all(runs_of(control))):
        return Proof.INTERMITTENT if intermittent(results, control.reruns) else Proof.OPEN
    seen = {_key(each.candidate, each.env): each for each in tallies(results, control.reruns)}
    chosen, default = seen.get(_key(control.chosen, control.env)), seen.get(DEFAULT)
    if chosen is None or default is None:  # a report that a person has edited
        return Proof.OPEN
    wanted = min(PROVED_ODDS.value, odds(control.wanted_each, control.wanted_each))
    if chosen.failed or (default.comes_and_goes and odds_of(control) < wanted):
        return Proof.INTERMITTENT
    return Proof.PROVED if odds_of(control) >= PROVED_ODDS.value else Proof.PROVISIONAL


def is_cure(control: Control, results: Sequence[TrialResult]) -> bool:
    """Return whether the A/B test in `control` supports the workaround, even if only provisionally."""
    return proof_of(control, results) in (Proof.PROVED, Proof.PROVISIONAL)


def runs_of(control: Control, name: str = "") -> tuple[int, int]:
    """Return (runs with the default settings, runs with `name`) of the A/B test in `control`.

    `name` is a configuration, or "" for the chosen workaround.
    """
    turns = control.turns(name or control.chosen)
    of_default = sum(each.candidate == DEFAULT for each in turns)
    return of_default, len(turns) - of_default


def odds_of(control: Control) -> int:
    """Return N, where chance alone gives the result of the A/B test in at most 1 of N cases."""
    luck = Fraction(1)
    for block in blocks_of(control.turns(control.chosen)):
        of_default = [each for each in block if each.candidate == DEFAULT]
        failed = sum(_way(each) is not Way.WORKS for each in of_default)
        luck *= Fraction(comb(len(of_default), failed), comb(len(block), failed))
    return int(1 / luck)


def blocks_of(turns: Sequence[Rerun]) -> list[list[Rerun]]:
    """Return the runs of an A/B test in blocks. Each block had its own random order."""
    # A complete block has as many runs with the workaround as without. The last block may be incomplete.
    blocks: list[list[Rerun]] = []
    for each in turns:
        if not blocks or is_whole(blocks[-1]):
            blocks.append([])
        blocks[-1].append(each)
    return blocks


def is_whole(block: Sequence[Rerun]) -> bool:
    """Return whether all planned runs of a block were made."""
    return len(block) >= 2 * block[0].runs_each


def proof_text(control: Control, default: TrialResult) -> str:
    """Return a text about the A/B test.

    The text has the number of runs, the number of failures, and the odds that the result is pure chance.
    """
    of_default, worked = runs_of(control)
    ways = [_way(each) for each in control.turns(control.chosen) if each.candidate == DEFAULT]
    failures = [way for way in ways if way is not Way.WORKS]
    first = way_of(default.outcome) or Way.ERROR
    text = (
        f"{len(failures)} of {of_default} runs with the default settings "
        f"{first.value if {first} >= set(failures) else 'failed'}, and {worked} of {worked} with the workaround worked "
        f"(random order, seed {control.seed}). An intermittent fault gives this result by chance at most 1 time in "
        f"{odds_of(control)}"
    )
    return text if odds_of(control) >= PROVED_ODDS.value else f"{text}; {PROVISIONAL_TEXT}"


def order_of_turns(seed: int, name: str, runs_each: int, block: int = 0) -> tuple[bool, ...]:
    """Return a random order of runs: True for the default settings, False for the configuration `name`.

    Each value occurs `runs_each` times. The same `seed`, `name` and `block` give the same order.
    """
    turns = [True] * runs_each + [False] * runs_each
    Random(f"{seed} {name}{f' {block}' if block else ''}").shuffle(turns)
    return tuple(turns)


def as_repeated(results: Sequence[TrialResult], reruns: Sequence[Rerun]) -> tuple[TrialResult, ...]:
    """Return a copy of `results` in which settings that failed in `reruns` are marked as failed.

    The default settings keep their result.
    """
    failures = {_key(each.candidate, each.env): each for each in reruns if each.outcome in FAILED}
    failures.pop(DEFAULT, None)

    def repeated(result: TrialResult) -> TrialResult:
        failure = failures.get(_key(result.candidate, result.env))
        if failure is None or has_failed(result):
            return result
        return replace(result, outcome=failure.outcome, problem=failure.problem, failed_in=failure.failed_in)

    return tuple(map(repeated, results))


def is_lost(results: Sequence[TrialResult], reruns: Sequence[Rerun]) -> bool:
    """Return whether an A/B test can no longer prove a workaround.

    The reason is that test runs with the same settings ended differently.
    """
    if not intermittent(results, reruns):
        return False
    if not any(each.candidate == DEFAULT and has_failed(each) for each in results):
        return True
    return any(
        _way(each) is Way.WORKS if each.candidate == DEFAULT and not each.control
        else each.candidate == each.control and each.outcome in FAILED
        for each in reruns
    )  # fmt: skip


def times_repeated(env: Env, reruns: Iterable[Rerun]) -> int:
    """Return how many of `reruns` have the settings `env`. The runs of A/B tests do not count."""
    return sum(not each.control and _key(each.candidate, each.env) == _key(DEFAULT, env) for each in reruns)


def times_worked(candidate: Candidate, results: Sequence[TrialResult], reruns: Sequence[Rerun]) -> int:
    """Return how often the settings of `candidate` worked in `results` and `reruns`.

    A test run that was skipped for lack of time counts as working.
    """
    tried: list[TrialResult | Rerun] = [*results, *reruns]
    key = _key(candidate.name, candidate.env)
    return sum(_way(each) in (Way.WORKS, None) for each in tried if _key(each.candidate, each.env) == key)


def is_repeated(env: Env, reruns: Iterable[Rerun]) -> bool:
    """Return whether any of `reruns` has the settings `env`. The runs of A/B tests do not count."""
    return times_repeated(env, reruns) > 0


def has_failed(result: TrialResult) -> bool:
    """Return whether a test run failed or got wrong data. The result is False for a skipped test run."""
    return result.outcome in FAILED or not all(each.verified for each in result.results)


def _key(candidate: str, env: Env) -> object:
    return tuple(sorted(env)) or candidate  # the default and as-is recommend nothing
