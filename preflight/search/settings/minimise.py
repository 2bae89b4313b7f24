"""Find a minimal set of settings with which the collectives work. The search does no I/O and always ends.

The search is a bisection (delta debugging). The first step enables all workarounds together. If the collectives still
fail, no setting helps. If the collectives work, the search drops settings, the least suspect settings first, as many at
once as possible. A setting that is needed is kept, and the search continues with the next settings. If m of k settings
are needed, the number of test runs is at most

    the default settings, and all workarounds                                    2
    of n settings that exclude each other (interfaces): one run for each but one n - 1
    one bisection for each needed setting, and one last run without the others   m (1 + log2 k)
    a failure that keeps a setting is repeated before it counts                  m

For one cause among nine settings, the search makes about six test runs. A result that follows from a failed test run is
not tested again.

A setting may also do harm, such as shared memory off if sockets are broken. All workarounds together then usually fail
at another stage than the default settings. Only in this case are the most suspect settings tested alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from preflight.model.trial import AS_IS, Candidate, Outcome, Scope, Setting, TrialResult
from preflight.search.settings.duel import is_sound

CORNER = "all workarounds"
MOST_ALONE = 3  # settings that are tried alone if all workarounds together do harm
NUMBERS = re.compile(r"0x[0-9a-f]+|[\d.]+")
Env = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Cure:
    """A step of the search for the fewest settings that work. `next` is None if the search is over."""

    next: Candidate | None
    on: tuple[Setting, ...] = ()  # the fewest that are known to work together
    repeats: bool = False  # `next` failed once; if it fails again, a setting is proved to be needed


def always(_: Env) -> bool:
    """Return True, so that every failure counts as repeated."""
    return True


def env_of(settings: Sequence[Setting]) -> Env:
    """Return the environment variables of several settings together.

    If settings give a variable several values, the last value that is not empty counts.
    """
    together: dict[str, str] = {}
    for setting in settings:
        together |= {name: value for name, value in setting.env if value or name not in together}
    return tuple(sorted(together.items()))


def find_cure(
    ordered: Sequence[Setting],
    results: Sequence[TrialResult],
    unsuspected: int = 0,
    is_repeated: Callable[[Env], bool] = always,
    proved: Sequence[Setting] = (),
) -> Cure:
    """Return the next step of the search for the fewest settings with which the collectives work.

    `ordered` has all workarounds in the order in which the search drops each workaround.
    """
    # The first `unsuspected` workarounds are the least suspect. `proved` has the workarounds for a fault that the GPU
    # tests found. These workarounds are tested first, one at a time.
    tried = _tried(results)
    for setting in proved:
        result = tried.get(env_of((setting,)))
        if result is None:
            return Cure(_candidate(f"only {setting.name}", (setting,), "the tests of the GPUs found this fault"))
        if is_sound(result):
            return Cure(None, (setting,))
    start = _corner(ordered, tried)
    if not start.on:
        return start
    front = set(ordered[:unsuspected])
    first_split = sum(each in front for each in start.on)
    return _give_up_by_halves(start.on, ordered, tried, is_repeated, first_split)


def minimise_inherited(
    inherited: Sequence[Setting], results: Sequence[TrialResult], is_repeated: Callable[[Env], bool] = always
) -> Cure:
    """Return the next step of the search for the inherited settings that the job needs.

    Call this function if the inherited settings work and the default settings fail.
    """
    return _give_up_by_halves(tuple(inherited), inherited, _tried(results), is_repeated, prefix="as-is ")


def _tried(results: Sequence[TrialResult]) -> dict[Env, TrialResult]:
    """Return the results of test runs, as {variables that the test run set: result}.

    For the default settings, the key is empty. The run with the inherited environment is left out, because this run
    tests no settings.
    """
    return {tuple(sorted(each.env)): each for each in results if each.candidate != AS_IS}


def _corner(ordered: Sequence[Setting], tried: dict[Env, TrialResult]) -> Cure:
    failures = []
    for i, corner in enumerate(_corners(ordered)):
        result = tried.get(env_of(corner))
        if result is None:
            chosen = next((setting for setting in corner if setting.choice == "netif"), None)
            name = CORNER if i == 0 or chosen is None else f"{CORNER}, {chosen.name}"
            return Cure(_candidate(name, corner, "all workarounds together: if this fails, none of them helps"))
        if is_sound(result):
            return Cure(None, corner)
        if result.outcome is Outcome.SKIPPED:
            return Cure(None)
        failures.append(result)
    default = tried.get(())
    if not failures or default is None or all(sign_of(each) == sign_of(default) for each in failures):
        return Cure(None)
    return _alone(ordered, tried)


def _corners(ordered: Sequence[Setting]) -> Iterator[tuple[Setting, ...]]:
    """Yield sets of settings that enable all workarounds together.

    Of settings that exclude each other, such as network interfaces, a set has only one setting. The first set has the
    most plausible settings. Each further set has another network interface. Other RDMA ports are tried later, because
    the choice of ports changes nothing while RDMA is off.
    """
    if not ordered:
        return
    first = {setting.choice: setting for setting in reversed(ordered) if setting.choice}
    netifs = [setting for setting in ordered if setting.choice == "netif"]
    for kept in [first, *({**first, "netif": other} for other in netifs[1:])]:
        yield tuple(setting for setting in ordered if not setting.choice or kept[setting.choice] is setting)


def _alone(ordered: Sequence[Setting], tried: dict[Env, TrialResult]) -> Cure:
    """Return the next test of a single setting, or the result if a single setting worked.

    Only the most suspect settings are tested alone. A single setting can work even if another setting does harm.
    """
    for setting in [each for each in reversed(ordered) if not each.choice][:MOST_ALONE]:
        result = tried.get(env_of((setting,)))
        if result is None:
            why = "all workarounds together failed in another way than the default settings, so one of them may do harm"
            return Cure(_candidate(f"only {setting.name}", (setting,), why))
        if is_sound(result):
            return Cure(None, (setting,))
        if result.outcome is Outcome.SKIPPED:
            break
    return Cure(None)


def _give_up_by_halves(
    on: tuple[Setting, ...],
    ordered: Sequence[Setting],
    tried: dict[Env, TrialResult],
    is_repeated: Callable[[Env], bool],
    first_split: int = 0,
    prefix: str = "",
) -> Cure:
    """Return the next step of the bisection of `on`, a list of settings that work together.

    The bisection looks for the longest prefix of the list that can be dropped. Without this prefix, the collectives
    still work.
    """
    kept: tuple[Setting, ...] = ()
    rest = on
    while rest:
        gone, fails = 0, len(rest) + bool(kept)  # it works without so many, and fails without so many
        while fails - gone > 1:
            count = _next_count(gone, fails, len(rest), 0 if kept else first_split)
            fewer = _in_order(on, (*kept, *rest[count:]))
            result = tried.get(env_of(fewer))
            if result is None:
                return Cure(_without(rest[gone:count], fewer, prefix), _in_order(on, (*kept, *rest[gone:])))
            if result.outcome is Outcome.SKIPPED:
                return Cure(None, _in_order(on, (*kept, *rest[gone:])))
            gone, fails = (count, fails) if is_sound(result) else (gone, count)
        rest = rest[gone:]
        without = _in_order(on, (*kept, *rest[1:]))
        if rest and without and not is_repeated(env_of(without)):
            again = _candidate("again", without, f"{rest[0].name} is needed if it fails again; {_kept(without)}")
            return Cure(again, _in_order(on, (*kept, *rest)), repeats=True)
        kept, rest = (*kept, *rest[:1]), rest[1:]
    return _other_ports(_in_order(on, kept), ordered, tried)


def _next_count(gone: int, fails: int, rest: int, first_split: int) -> int:
    """Return how many settings to drop in the next test of the bisection.

    The first test drops all settings. The second test drops `first_split` settings, the number of unsuspected settings.
    Later tests halve the remaining range.
    """
    if fails > rest:
        return rest
    return first_split if gone < first_split < fails else (gone + fails) // 2


def _without(given_up: Sequence[Setting], fewer: Sequence[Setting], prefix: str) -> Candidate:
    names = ", ".join(each.name for each in given_up)
    more = f" and {len(given_up) - 1} more" if len(given_up) > 1 else ""
    reason = f"{'are' if more else 'is'} {names} needed? {_kept(fewer)}"
    return _candidate(f"{prefix}without {given_up[0].name}{more}", fewer, reason)


def _in_order(on: Sequence[Setting], some: Sequence[Setting]) -> tuple[Setting, ...]:
    return tuple(each for each in on if each in some)


def _other_ports(on: tuple[Setting, ...], ordered: Sequence[Setting], tried: dict[Env, TrialResult]) -> Cure:
    """If the needed settings turn RDMA off, return the next test that uses some RDMA ports instead.

    If no test is left, return the result of the search.
    """
    off = [setting for setting in on if "no-rdma" in setting.families]
    choices = [setting for setting in ordered if setting.choice == "hca"]
    if not off or any(setting in choices for setting in on):
        return Cure(None, on)
    for other in choices[1:]:  # with the first of them the corner was
        swapped = tuple(each for each in ordered if each is other or (each in on and each not in off))
        result = tried.get(env_of(swapped))
        if result is None:
            why = f"some RDMA ports instead of none: {_kept(swapped)}"
            return Cure(_candidate(f"{other.name} for {off[0].name}", swapped, why), on)
        if result.outcome is Outcome.SKIPPED:
            break
        if is_sound(result):
            return Cure(None, swapped)
    return Cure(None, on)


def sign_of(result: TrialResult) -> tuple[str, ...]:
    """Return a tuple that identifies the failure in `result`. Equal failures have equal tuples.

    The tuple has the outcome, the stages without their counts, and the errors without numbers.
    """
    stages = {stage.split()[0] for rank, stage in result.stages if not result.culprits or rank in result.culprits}
    own = [end.detail for end in result.ranks if end.ended in ("error", "signal")]
    details = {NUMBERS.sub("#", detail) for detail in own}
    return (result.outcome.value, *sorted(stages), *sorted(details))


def _candidate(name: str, settings: Sequence[Setting], reason: str) -> Candidate:
    local = bool(settings) and all(setting.scope is Scope.ONE_NODE for setting in settings)
    return Candidate(name, env_of(settings), reason, Scope.ONE_NODE if local else Scope.ANYWHERE)


def _kept(settings: Sequence[Setting]) -> str:
    return "set are " + ", ".join(setting.name for setting in settings)
