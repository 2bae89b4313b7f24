"""The search for the fewest settings that cure a default that fails. Pure; it ends, and what it finds is minimal.

First the safe corner: all conservative settings together. Where that fails too, no setting cures the default. Where it
passes, the settings are given up one after the other, least suspect first, and each that the rest does without is gone.
If a setting only ever helps, then what remains is minimal whatever the number of faults: each setting in it was needed
beside a superset of the others. With k settings these are at most 2 + k trials, the default's own among them:

    default, corner                                                              2
    settings that exclude each other (interfaces): the corner with each other    m - 1 of their m
    one trial per setting that the corner held                                   k - (m - 1)

What a failed trial implies is not tried again: without its last setting the corner is the default, which failed.

A setting may also do harm, such as shared memory off where sockets are broken. Then the corner fails, but most often
elsewhere than the default did: only then the most suspect settings are tried alone, within the same 2 + k. Where it
failed alike nothing more is tried: each trial of a dead node would take its whole stage limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from preflight.model.trial import AS_IS, Candidate, Outcome, Scope, Setting, TrialResult
from preflight.plan.settings.duel import is_sound

CORNER = "safe corner"
MOST_ALONE = 3  # settings that are tried by themselves where the corner did harm
NUMBERS = re.compile(r"0x[0-9a-f]+|[\d.]+")
Env = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Cure:
    """How far a search has come: what to try next, or why nothing more."""

    next: Candidate | None
    on: tuple[Setting, ...] = ()  # the fewest that are known to work together


def env_of(settings: Sequence[Setting]) -> Env:
    """Return what settings set together; a later one goes before an earlier one, but never with an empty value."""
    together: dict[str, str] = {}
    for setting in settings:
        together |= {name: value for name, value in setting.env if value or name not in together}
    return tuple(sorted(together.items()))


def find_cure(ordered: Sequence[Setting], results: Sequence[TrialResult]) -> Cure:
    """Return the next step of the search; `ordered` has the least suspect setting first."""
    tried = _tried(results)
    start = _corner(ordered, tried)
    return _give_up_one_by_one(start.on, ordered, tried) if start.on else start


def minimise_inherited(inherited: Sequence[Setting], results: Sequence[TrialResult]) -> Cure:
    """Return the next step where the inherited settings work and the default does not: they are their own corner."""
    return _give_up_one_by_one(tuple(inherited), inherited, _tried(results), "as-is ")


def _tried(results: Sequence[TrialResult]) -> dict[Env, TrialResult]:
    """Return the results by what they set; the default sets nothing, and as-is is no trial of settings."""
    return {tuple(sorted(each.env)): each for each in results if each.candidate != AS_IS}


def _corner(ordered: Sequence[Setting], tried: dict[Env, TrialResult]) -> Cure:
    failures = []
    for i, corner in enumerate(_corners(ordered)):
        result = tried.get(env_of(corner))
        if result is None:
            chosen = next((setting for setting in corner if setting.choice == "netif"), None)
            name = CORNER if i == 0 or chosen is None else f"{CORNER}, {chosen.name}"
            return Cure(_candidate(name, corner, "all conservative settings together: if this fails, none cures it"))
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
    """Yield all settings, of those that exclude each other the most plausible; then with each other interface.

    Other sets of RDMA ports wait: with RDMA off their choice changes nothing.
    """
    if not ordered:
        return
    first = {setting.choice: setting for setting in reversed(ordered) if setting.choice}
    netifs = [setting for setting in ordered if setting.choice == "netif"]
    for kept in [first, *({**first, "netif": other} for other in netifs[1:])]:
        yield tuple(setting for setting in ordered if not setting.choice or kept[setting.choice] is setting)


def _alone(ordered: Sequence[Setting], tried: dict[Env, TrialResult]) -> Cure:
    """Return the trial of the most suspect settings by themselves, which needs no setting to be harmless."""
    for setting in [each for each in reversed(ordered) if not each.choice][:MOST_ALONE]:
        result = tried.get(env_of((setting,)))
        if result is None:
            why = "the safe corner failed elsewhere than the default did, so one of its settings may do harm itself"
            return Cure(_candidate(f"only {setting.name}", (setting,), why))
        if is_sound(result):
            return Cure(None, (setting,))
        if result.outcome is Outcome.SKIPPED:
            break
    return Cure(None)


def _give_up_one_by_one(
    on: tuple[Setting, ...], ordered: Sequence[Setting], tried: dict[Env, TrialResult], prefix: str = ""
) -> Cure:
    for setting in on:
        fewer = tuple(each for each in on if each is not setting)
        if not fewer:  # without any setting it is the default, which failed
            continue
        result = tried.get(env_of(fewer))
        if result is None:
            why = f"is {setting.name} needed? " + _kept(fewer)
            return Cure(_candidate(f"{prefix}without {setting.name}", fewer, why), on)
        if result.outcome is Outcome.SKIPPED:
            return Cure(None, on)
        if is_sound(result):
            on = fewer
    return _other_ports(on, ordered, tried)


def _other_ports(on: tuple[Setting, ...], ordered: Sequence[Setting], tried: dict[Env, TrialResult]) -> Cure:
    """Return the trial of other RDMA ports in the place of no RDMA at all, where that is what remained."""
    off = [setting for setting in on if "ib" in setting.families and not setting.choice]
    choices = [setting for setting in ordered if setting.choice == "hca"]
    if not off or any(setting in choices for setting in on):
        return Cure(None, on)
    for other in choices[1:]:  # with the first of them the corner was
        swapped = tuple(each for each in ordered if each is other or (each in on and each not in off))
        result = tried.get(env_of(swapped))
        if result is None:
            why = f"some RDMA ports in the place of none: {_kept(swapped)}"
            return Cure(_candidate(f"{other.name} for {off[0].name}", swapped, why), on)
        if result.outcome is Outcome.SKIPPED:
            break
        if is_sound(result):
            return Cure(None, swapped)
    return Cure(None, on)


def sign_of(result: TrialResult) -> tuple[str, ...]:
    """Return how a trial failed, comparable: the outcome, the stages without their count, the error without numbers."""
    stages = {stage.split()[0] for rank, stage in result.stages if not result.culprits or rank in result.culprits}
    own = [end.detail for end in result.ranks if end.ended in ("error", "signal")]
    details = {NUMBERS.sub("#", detail) for detail in own}
    return (result.outcome.value, *sorted(stages), *sorted(details))


def _candidate(name: str, settings: Sequence[Setting], reason: str) -> Candidate:
    local = bool(settings) and all(setting.scope is Scope.ONE_NODE for setting in settings)
    return Candidate(name, env_of(settings), reason, Scope.ONE_NODE if local else Scope.ANYWHERE)


def _kept(settings: Sequence[Setting]) -> str:
    return "set are " + ", ".join(setting.name for setting in settings)
