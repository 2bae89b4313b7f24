"""What to try next, from what is known so far. Pure: the conductor asks, and does it.

A failed default makes settings suspect: by its errors' words, by what it used when it failed, by broken pairs.
Suspicion orders the search and decides nothing: a setting is recommended only where a trial without it failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from preflight.model.baseline import NO_BASELINE, Baseline, wants_repetition
from preflight.model.run_spec import Duel, Measure
from preflight.model.transport import texts_of
from preflight.model.trial import AS_IS, DEFAULT, Candidate, Outcome, Setting, TrialResult
from preflight.plan.settings.duel import DUEL_PAIRS, finalist, heats, is_sound, screening_gains
from preflight.plan.settings.minimise import find_cure, minimise_inherited

# Words of NCCL's, torch's and the kernel's errors (facts 1.1, 2.2, 2.3, 7), in lower case, by family of settings.
WORDS = (
    ("shm", re.compile(r"/dev/shm|shared memory segment|no space left|sigbus|via shm")),
    ("p2p", re.compile(r"\bp2p\b|peer access|peer mapping|illegal memory access|via p2p|nvlink")),
    ("nvls", re.compile(r"nvls|multicast|nvlink sharp|fabric.?manager")),
    ("ib", re.compile(r"\bibv_|net/ib|infiniband|mlx\d|\broce\b|ib_|local catastrophic|via net/ib|network ib")),
    ("plugin", re.compile(r"net plugin|net_plugin|libnccl-net|libfabric|\bofi\b|aws-ofi")),
    ("cumem", re.compile(r"cumem|cumemcreate|cumemimport|fabric handle|posix file descriptor")),
    ("mnnvl", re.compile(r"mnnvl|imex")),
    ("socket", re.compile(r"no socket interface|socket|bootstrap|connection refused|no route to host|via net/socket")),
    ("conf", re.compile(r"nccl\.conf|invalid usage|invalid argument")),
)
# The causes that `explain` names, as far as a setting helps.
CAUSES = {
    "p2p_broken": "p2p",
    "shm_too_small": "shm",
    "ib_broken": "ib",
    "nccl_plugin_problem": "plugin",
    "nvlink_or_fabric_manager": "nvls",
    "wrong_socket_interface": "socket",
}


@dataclass(frozen=True, slots=True)
class Try:
    """Give this candidate its trial; it may have been made on the way."""

    candidate: Candidate
    is_for_cure: bool = False  # one of many that only have to work: a few sizes tell


@dataclass(frozen=True, slots=True)
class Compare:
    """Measure this candidate against the default in so many fresh pairs of process groups."""

    candidate: str
    pairs: int


@dataclass(frozen=True, slots=True)
class Again:
    """Repeat the default's trial: it looks slow beside the baseline; the repetition teaches the search nothing."""

    turn: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more is worth trying."""


Next = Try | Compare | Again | Stop


@dataclass(frozen=True, slots=True)
class Known:
    """What the run has learnt so far."""

    results: tuple[TrialResult, ...] = ()
    heated: tuple[Duel, ...] = ()  # one pair each
    compared: tuple[Duel, ...] = ()
    unkillable: bool = False  # a process is stuck in the kernel and keeps its GPU
    broken_pairs: tuple[tuple[int, int], ...] = ()  # local ranks between whose GPUs peer copies hang or arrive wrong
    repeats: tuple[TrialResult, ...] = ()  # of the default, for a baseline
    suspects: tuple[str, ...] = ()  # families of settings, or causes, that other evidence made suspect


def next_step(
    candidates: Sequence[Candidate],
    screen_all: bool,
    decisions: Sequence[Measure],
    known: Known,
    settings: Sequence[Setting] = (),
    inherited: Sequence[Setting] = (),
    last: Candidate | None = None,
    baseline: Baseline = NO_BASELINE,
) -> Next:
    """Return the next step: the default, the inherited settings, then what the default's outcome makes worth trying.

    The default fails: where the inherited settings work, which of them are needed (`inherited` has them one by one);
    else the cure among the conservative `settings` (minimise.py), and without these every candidate. It works: with
    `screen_all` every candidate, and comparisons. The best of those that passed is measured afresh: the best of several
    equal ones looks better by chance. After a process that SIGKILL does not end nothing more is tried: every candidate
    would run on its GPU. `last` ends a thorough search of a default that works: it only shows more of it. A default
    that works and looks slow beside the `baseline` is repeated before anything else is measured.
    """
    if known.unkillable:
        return Stop()
    tried = {result.candidate: result for result in known.results}
    for candidate in candidates:
        if candidate.name in (DEFAULT, AS_IS) and candidate.name not in tried:
            return Try(candidate)
    default, as_is = tried.get(DEFAULT), tried.get(AS_IS)
    default_works = default is not None and is_sound(default)
    if default is not None and not default_works:
        if as_is is not None and is_sound(as_is):
            return _try_or_stop(minimise_inherited(inherited, known.results).next, is_for_cure=True)
        if settings:
            return _cure(settings, default, known)
    if default_works and wants_repetition(baseline, (*known.results, *known.repeats)):
        return Again(len(known.repeats) + 1)
    wanted = candidates if screen_all or not default_works else ()
    untried = next((each for each in wanted if each.name not in tried), None)
    compares = untried is None and default_works and screen_all
    return _next_comparison(decisions, known, tried, last) if compares else _try_or_stop(untried)


def _cure(settings: Sequence[Setting], default: TrialResult, known: Known) -> Next:
    if default.outcome is Outcome.SKIPPED:
        return Stop()
    families = suspected_families(default, known.broken_pairs, known.suspects)
    return _try_or_stop(find_cure(by_suspicion(settings, families), known.results).next, is_for_cure=True)


def _try_or_stop(candidate: Candidate | None, *, is_for_cure: bool = False) -> Next:
    return Stop() if candidate is None else Try(candidate, is_for_cure)


def _next_comparison(
    decisions: Sequence[Measure], known: Known, tried: Mapping[str, TrialResult], last: Candidate | None
) -> Next:
    compared = {duel.candidate for duel in known.compared}
    if AS_IS in tried and is_sound(tried[AS_IS]) and AS_IS not in compared:
        return Compare(AS_IS, DUEL_PAIRS)
    screened = screening_gains(decisions, known.results)
    heated = {duel.candidate for duel in known.heated}
    for name in heats(screened):
        if name not in heated:
            return Compare(name, 1)
    best = finalist(screened, known.heated)
    if best and best not in compared:
        return Compare(best, DUEL_PAIRS)
    return Try(last) if last is not None and last.name not in tried else Stop()


def suspected_families(default: TrialResult | None, broken_pairs: Sequence[object], named: Iterable[str]) -> set[str]:
    """Return the families under suspicion; `named` holds families or names of causes that others found."""
    found = {CAUSES.get(each, each) for each in named}
    if broken_pairs:
        found.add("p2p")
    if default is not None:
        words = [text for end in default.ranks for text in (end.detail, *(line.text for line in end.log))]
        text = "\n".join((default.problem, *words, *texts_of(default.transport))).lower()
        found |= {family for family, pattern in WORDS if pattern.search(text)}
        if default.outcome is Outcome.WRONG_DATA:
            found |= {"p2p", "nvls"}  # the ways on which nothing checks that the bytes arrived
    return found


def by_suspicion(settings: Sequence[Setting], families: set[str]) -> tuple[Setting, ...]:
    """Return the settings with the suspects last, otherwise in the order in which they were planned."""
    return tuple(sorted(settings, key=lambda setting: bool(families.intersection(setting.families))))
