"""A search played to its end without a machine: whatever the plan says is tried is asked of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from preflight.model.trial import NO_CONTROL, Candidate, Control, Rerun, Setting, TrialResult
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.search.settings.duel import is_sound
from preflight.search.settings.search import next_step
from preflight.search.settings.steps import Known, Next, Repeat, Stop, Try
from tests.simnccl.interpreter import interpret
from tests.simnccl.simnccl import Rule

NOTHING_ELSE = Known()


@dataclass
class Searched:
    """What a search tried and what it ended with."""

    results: tuple[TrialResult, ...]
    control: Control = NO_CONTROL

    @property
    def names(self) -> list[str]:
        return [each.candidate for each in self.results]

    @property
    def best(self) -> dict[str, str] | None:
        """The fewest settings that worked in a trial; None where none did."""
        working = [each for each in self.results if is_sound(each)]
        return dict(min(working, key=lambda each: len(each.env)).env) if working else None


def play(
    following: Callable[[Known], Next], run: Callable[[Next], TrialResult], known: Known, runs_each: int = 2
) -> Searched:
    """Do what the plan says until it stops; no candidate is tried twice."""
    results: tuple[TrialResult, ...] = ()
    reruns: tuple[Rerun, ...] = ()
    for _ in range(200):
        match following(replace(known, results=results, reruns=reruns)):
            case Stop(chosen=chosen):
                named = (chosen.name, chosen.env) if chosen else ("", ())
                return Searched(results, Control(known.seed, runs_each, *named, reruns))
            case Repeat() as step:
                result = run(step)
                reruns += (step.ended(result),)
            case Try(candidate=candidate) as step:
                assert (candidate.name, candidate.env) not in [(each.candidate, each.env) for each in results]
                results += (run(step),)
            case step:
                raise AssertionError(f"a search for a cure does not {step}")
    raise AssertionError("the search does not end")


def search(
    settings: Sequence[Setting],
    run: Callable[[Candidate], TrialResult],
    candidates: Sequence[Candidate] = (DEFAULT_CANDIDATE,),
    inherited: Sequence[Setting] = (),
    known: Known = NOTHING_ELSE,
    runs_each: int = 2,
    left_s: Callable[[], float] | None = None,
) -> Searched:
    """Search for what cures a default that fails, on a machine that answers as `run` does, and go back to it."""

    def following(now: Known) -> Next:
        now = replace(now, left_s=left_s()) if left_s else now
        return next_step(candidates, False, (), now, settings, inherited, runs_each=runs_each)

    def tried(step: Next) -> TrialResult:
        assert isinstance(step, (Try, Repeat))
        return run(step.candidate)

    return play(following, tried, known, runs_each)


def searched(rules: Sequence[Rule], settings: Sequence[Setting], known: Known = NOTHING_ELSE) -> Searched:
    """Search on a machine with these faults."""
    return search(settings, lambda candidate: interpret(rules, candidate), known=known)
