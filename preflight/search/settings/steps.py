"""The steps of a search, and the results from which the search chooses the next step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from preflight.model.run_spec import Duel, Measure
from preflight.model.trial import Candidate, Rerun, TrialResult


@dataclass(frozen=True, slots=True)
class Try:
    """A step that tests a configuration. An earlier step may have tested the same configuration."""

    candidate: Candidate
    is_for_cure: bool = False  # one of many trials that only show whether settings work: few sizes
    to_failure: bool = False  # it ends with the size at which trials failed


@dataclass(frozen=True, slots=True)
class Repeat:
    """A step that tests the same settings again, to see whether the result varies."""

    candidate: Candidate
    control: str = ""  # the candidate whose runs alternate with the default's; "" if only a failure is repeated
    runs_each: int = 0

    def ended(self, result: TrialResult, duration_s: float | None = None) -> Rerun:
        """Return the record of this repetition, which ended with `result`.

        If `duration_s` is not None, `duration_s` replaces the duration in `result`.
        """
        candidate, took_s = self.candidate, result.duration_s if duration_s is None else duration_s
        return Rerun(
            candidate.name, candidate.env, result.outcome, result.problem, took_s, self.control, self.runs_each,
            result.failed_in, result.culprits,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compare:
    """A step that compares a configuration with the default settings in `pairs` new pairs of process groups."""

    candidate: str
    pairs: int


@dataclass(frozen=True, slots=True)
class Again:
    """A step that tests the default settings again, because a result looks slow. `why` says which result.

    The repetition does not change the next step of the search.
    """

    turn: int
    why: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of the search. `chosen` is the workaround for failing default settings, or None."""

    chosen: Candidate | None = None


Next = Try | Repeat | Compare | Again | Stop


@dataclass(frozen=True, slots=True)
class Known:
    """The results of the run so far, from which the search chooses its next step."""

    results: tuple[TrialResult, ...] = ()
    heated: tuple[Duel, ...] = ()  # short comparisons, in one pair of process groups each
    compared: tuple[Duel, ...] = ()
    unkillable: bool = False  # a process is stuck in the kernel and keeps its GPU
    broken_pairs: tuple[tuple[int, int], ...] = ()  # local ranks between whose GPUs peer copies hang or arrive wrong
    repeats: tuple[TrialResult, ...] = ()  # repetitions of default settings that looked slow
    suspects: tuple[str, ...] = ()  # families of settings that other evidence made suspect
    reruns: tuple[Rerun, ...] = ()
    failed_at: tuple[Measure, ...] = ()  # the measures at which trials failed; empty if they failed earlier
    left_s: float = math.inf  # until the deadline
    seed: int = 0  # of the random order of a control's runs
    node_sizes: tuple[int, ...] = ()  # ranks of each node, if several run together
