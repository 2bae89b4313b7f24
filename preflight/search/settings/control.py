"""Whether a failure depends on the settings, or comes and goes regardless of them. Pure.

A workaround is confirmed by a run without it: then the fault must return. But a fault at every second start also looks
like fail, work, fail, work. So the control runs the default settings n times and the workaround n times, in a new
random order each time. A fault that does not depend on the settings matches that order in at most 1 of C(2n, n) cases:
1 of 6 for n = 2, 1 of 70 for n = 4, 1 of 924 for n = 6.

Trials with the same settings must end alike, in the search and in the control. They must fail in the same way (a hang,
an error, wrong data). A hang or an error must also happen at the same place (the start, or a collective). If they end
differently, the fault is intermittent and no setting is its workaround. Details that vary even with a steady fault are
not compared: the rank that is named, the text of its error, and which of many calls failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from preflight.model.profile import Profile
from preflight.model.trial import DEFAULT, FAILED, IN_START, REPEATED, Control, Outcome, Rerun, TrialResult, odds

PROVISIONAL_TEXT = "provisional, confirm with --profile standard"
PROVED_BY = Profile.STANDARD.effort.runs_each  # runs of either; with fewer a cure is provisional
Env = tuple[tuple[str, str], ...]


class Proof(Enum):
    """How well the closing control confirms a workaround."""

    PROVED = "proved"
    PROVISIONAL = "provisional"  # it agrees, but luck is not unlikely enough
    INTERMITTENT = "intermittent"  # the same settings ended differently
    OPEN = "open"  # there was no time to go back


class Way(Enum):
    """The way in which a trial ended, reduced to what can be compared between trials."""

    WORKS = "worked"
    HANG = "hung"
    ERROR = "failed with an error"
    WRONG_DATA = "gave wrong data"


@dataclass(frozen=True, slots=True)
class Tally:
    """How all trials of the same settings ended, in their order."""

    candidate: str
    env: Env
    ways: tuple[Way, ...]
    problems: tuple[str, ...]  # of those that failed
    places: tuple[str, ...]  # what each failed in, where that is known: the start, or a collective

    @property
    def failed(self) -> int:
        return sum(way is not Way.WORKS for way in self.ways)

    @property
    def comes_and_goes(self) -> bool:
        return 0 < self.failed < len(self.ways)

    @property
    def is_steady(self) -> bool:
        """Return whether all trials ended alike: all worked, or all failed in the same way and at the same place."""
        return len(set(self.ways)) < 2 and len(set(filter(None, self.places))) < 2

    def text(self) -> str:
        """Return `the default hung in 1 of 3 tries`, or `hung at the start 1 time and in all_reduce 2 times`."""
        who = "the default" if self.candidate == DEFAULT else f"trial '{self.candidate}'"
        tries = f"of {len(self.ways)} tr{'y' if len(self.ways) == 1 else 'ies'}"
        places = len(set(filter(None, self.places)))
        ends = [
            f"{way.value}{place_text(place) if places > 1 else ''}"
            for way, place in zip(self.ways, self.places, strict=True)
            if way is not Way.WORKS or not self.failed
        ]
        return f"{who} {' and '.join(f'{each} in {ends.count(each)}' for each in dict.fromkeys(ends))} {tries}"


def place_text(place: str) -> str:
    """Return the place of a failure in words, which follow the words for the way in which it failed."""
    return {"": "", IN_START: " at the start"}.get(place, f" during {place}")


def way_of(outcome: Outcome) -> Way | None:
    """Return the way in which a trial ended, or None if the trial was not made."""
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
    """Return how often each set of settings worked and failed.

    If a search made two trials with the same settings, the later one counts, because it goes further.
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
    """Return the settings whose trials ended differently at different times; the default settings come first."""
    return tuple(
        sorted((each for each in tallies(results, reruns) if not each.is_steady), key=lambda t: t.candidate != DEFAULT)
    )


def proof_of(control: Control, results: Sequence[TrialResult]) -> Proof:
    """Return how well the control confirms the chosen workaround for default settings that fail."""
    if intermittent(results, control.reruns):
        return Proof.INTERMITTENT
    failed, worked = runs_of(control)
    if not (control.chosen and failed and worked):
        return Proof.OPEN
    return Proof.PROVED if min(failed, worked) >= PROVED_BY else Proof.PROVISIONAL


def runs_of(control: Control, name: str = "") -> tuple[int, int]:
    """Return how many runs a control has of the default and of the settings `name`, or of its chosen workaround."""
    turns = control.turns(name or control.chosen)
    of_default = sum(each.candidate == DEFAULT for each in turns)
    return of_default, len(turns) - of_default


def odds_of(control: Control) -> int:
    """Return N, if chance would produce the control's result in at most 1 of N cases."""
    return odds(*runs_of(control))


def proof_text(control: Control, default: TrialResult) -> str:
    """Return one sentence on the control: its counts, the probability of that result by chance, and what is missing."""
    failed, worked = runs_of(control)
    way = way_of(default.outcome) or Way.ERROR
    text = (
        f"repeated in random order (seed {control.seed}): {way.value} in {failed} of "
        f"{failed} runs without it, worked in {worked} of {worked} with it; an unrelated intermittent fault would "
        f"match this at most 1 time in {odds_of(control)}"
    )
    return text if min(failed, worked) >= PROVED_BY else f"{text}: {PROVISIONAL_TEXT}"


def order_of_turns(seed: int, name: str, runs_each: int) -> tuple[bool, ...]:
    """Return a random order of `runs_each` runs of the default settings (True) and as many of the others (False)."""
    turns = [True] * runs_each + [False] * runs_each
    Random(f"{seed} {name}").shuffle(turns)
    return tuple(turns)


def times_repeated(env: Env, reruns: Iterable[Rerun]) -> int:
    """Return how often these settings have been tried again outside a control."""
    return sum(not each.control and _key(each.candidate, each.env) == _key(DEFAULT, env) for each in reruns)


def is_repeated(env: Env, reruns: Iterable[Rerun]) -> bool:
    """Return whether these settings have been tried again outside a control."""
    return times_repeated(env, reruns) > 0


def has_failed(result: TrialResult) -> bool:
    """Return whether a trial was made and failed."""
    return result.outcome in FAILED or not all(each.verified for each in result.results)


def _key(candidate: str, env: Env) -> object:
    return tuple(sorted(env)) or candidate  # the default and as-is recommend nothing
