"""A search played to its end without a machine: whatever the plan says is tried is asked of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from preflight.model.trial import Candidate, Setting, TrialResult
from preflight.plan.settings.candidates import DEFAULT_CANDIDATE
from preflight.plan.settings.duel import is_sound
from preflight.plan.settings.search import Known, Stop, Try, next_step
from tests.simnccl.interpreter import interpret
from tests.simnccl.simnccl import Rule

NOTHING_ELSE = Known()


@dataclass
class Searched:
    """What a search tried and what it ended with."""

    results: tuple[TrialResult, ...]

    @property
    def names(self) -> list[str]:
        return [each.candidate for each in self.results]

    @property
    def best(self) -> dict[str, str] | None:
        """The fewest settings that worked in a trial; None where none did."""
        working = [each for each in self.results if is_sound(each)]
        return dict(min(working, key=lambda each: len(each.env)).env) if working else None


def search(
    settings: Sequence[Setting],
    run: Callable[[Candidate], TrialResult],
    candidates: Sequence[Candidate] = (DEFAULT_CANDIDATE,),
    inherited: Sequence[Setting] = (),
    known: Known = NOTHING_ELSE,
) -> Searched:
    """Do what the plan says until it stops; no candidate is tried twice."""
    results: tuple[TrialResult, ...] = ()
    for _ in range(100):
        told = replace(known, results=results)
        step = next_step(candidates, False, (), told, settings, inherited)
        if isinstance(step, Stop):
            return Searched(results)
        assert isinstance(step, Try)
        assert (step.candidate.name, step.candidate.env) not in [(each.candidate, each.env) for each in results]
        results += (run(step.candidate),)
    raise AssertionError("the search does not end")


def searched(rules: Sequence[Rule], settings: Sequence[Setting], known: Known = NOTHING_ELSE) -> Searched:
    """Search on a machine with these faults."""
    return search(settings, lambda candidate: interpret(rules, candidate), known=known)
