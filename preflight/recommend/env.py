"""From trials and comparisons to settings: the fewest that were tried, worked and helped, each with what earned it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from preflight.model.advice import Advice
from preflight.model.facts import EnvVar, Gap
from preflight.model.trial import AS_IS, DEFAULT, Comparison, Outcome, Scope, TrialResult
from preflight.model.units import percent_text
from preflight.plan.cure import env_of
from preflight.plan.duel import MIN_GAIN, decision_results, is_sound
from preflight.recommend.background import Background
from preflight.recommend.compare import loses
from preflight.recommend.needed import Needed, why_needed
from preflight.recommend.said import ending, figure, said_of

NO_TIMEOUT = Gap("no safe timeout was computed")  # until with_timeouts() puts one in
# What these say holds for the network between this node's own ranks; between nodes it may be another one.
NETWORK = (
    "NCCL_MNNVL_",
    "NCCL_CONF_FILE",
    "NCCL_SOCKET_",
    "NCCL_IB_",
    "NCCL_NET",
    "NCCL_CROSS_NIC",
    "GLOO_SOCKET_",
    "TP_SOCKET_",
)
NO_BACKGROUND = Background()
INTERFACE_NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the run has to decide with."""

    trials: tuple[TrialResult, ...]
    default: TrialResult | None
    as_is: TrialResult | None
    candidates: tuple[TrialResult, ...]  # sound ones that may be recommended
    comparisons: dict[str, Comparison]
    inherited: tuple[str, ...]
    cpu_path: bool
    background: Background


def recommend(
    trials: Sequence[TrialResult],
    comparisons: Sequence[Comparison],
    inherited: Sequence[EnvVar],
    cpu_path: bool,
    gpus: tuple[str, ...] = (),
    background: Background = NO_BACKGROUND,
) -> Advice:
    """Return the settings to source, or none and why.

    The default stays unless a comparison was won against it. Where the default fails, those of the inherited settings
    are kept that it needs; otherwise the sound candidate with the fewest settings is taken, the fastest of equals.
    """
    seen = _Seen(
        trials=tuple(trials),
        default=next((trial for trial in trials if trial.candidate == DEFAULT), None),
        as_is=next((trial for trial in trials if trial.candidate == AS_IS), None),
        candidates=tuple(trial for trial in trials if _may_win(trial)),
        comparisons={comparison.candidate: comparison for comparison in comparisons},
        inherited=tuple(variable.name for variable in inherited),
        cpu_path=cpu_path,
        background=background,
    )
    if seen.default is None:
        return _nothing("no trial ran, so nothing can be recommended", gpus)
    if is_sound(seen.default):
        return _beside_a_working_default(seen, seen.default, gpus)
    return _beside_a_failing_default(seen, seen.default, gpus)


def _beside_a_failing_default(seen: _Seen, default: TrialResult, gpus: tuple[str, ...]) -> Advice:
    fewest = sorted(seen.candidates, key=lambda trial: (len(trial.env), -_speed(trial, seen.cpu_path), trial.candidate))
    if seen.as_is is not None and is_sound(seen.as_is):
        return _inherited_that_are_needed(seen, default, [*fewest, seen.as_is][0], gpus)
    if not fewest:
        return _nothing(f"no setting that was tried works: the default {ending(default)}", gpus)
    best = fewest[0]
    cure = why_needed(seen.background.settings, best, seen.trials)
    if not cure:
        told = f"trial '{best.candidate}' works, the default does not"
        return _settings(seen, best, f"the default {ending(default)}", told, gpus)
    advice = _settings(seen, best, "", _cure_reason(cure, best, seen.cpu_path), gpus)
    said = [line for needed in cure for line in said_of(needed, best, seen.cpu_path, seen.background)]
    removed = [(name, text) for name, text in advice.evidence if name in advice.unset]
    local = {name for each in cure if each.setting.scope is Scope.ONE_NODE for name, _ in each.setting.env}
    one_node = tuple(dict.fromkeys([*(name for name, _ in best.env if name in local), *advice.one_node_only]))
    return replace(advice, evidence=_by_name((*said, *removed)), one_node_only=one_node)


def _inherited_that_are_needed(seen: _Seen, default: TrialResult, best: TrialResult, gpus: tuple[str, ...]) -> Advice:
    """Keep what the default needs of the inherited settings; the others stay as they are, they do no harm."""
    inherited = seen.background.inherited
    with_env = replace(best, env=env_of(inherited)) if best.candidate == AS_IS else best
    cure = why_needed(inherited, with_env, seen.trials)
    why = f"the inherited settings are needed: without them the default {ending(default)}"
    unproven = best.candidate == AS_IS and any(each.failed is None for each in cure)
    if not cure or unproven or _names_loopback(with_env):
        return _nothing(why, gpus)
    said = [line for each in cure for line in said_of(each, best, seen.cpu_path, seen.background, inherited=True)]
    needed = {name for each in cure for name, _ in each.setting.env}
    others = ", ".join(name for name in seen.inherited if name not in needed)
    reason = f"{why}{f'; it works without {others}' if others else ''}"
    open_ones = _open(cure)
    one_node = tuple(_network(name for name, _ in with_env.env))
    reason += f"; {open_ones}" if open_ones else ""
    return Advice(with_env.env, (), _by_name(said), one_node, NO_TIMEOUT, NO_TIMEOUT, gpus, reason)


def _cure_reason(cure: Sequence[Needed], best: TrialResult, cpu_path: bool) -> str:
    names = [each.setting.name for each in cure]
    told = f"the default fails; with {_and(names)} it works: {figure(best, cpu_path)}, verified"
    open_ones = _open(cure)
    if open_ones or len(names) == 1:
        return f"{told}; {open_ones}" if open_ones else told
    return f"{told}; each of them is needed, since without it and with the others a trial failed"


def _by_name(said: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return one entry a name, its lines below each other: in JSON the evidence is an object."""
    lines: dict[str, list[str]] = {}
    for name, line in said:
        lines.setdefault(name, []).append(line)
    return tuple((name, "\n".join(told)) for name, told in lines.items())


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _open(cure: Sequence[Needed]) -> str:
    unproven = [each.setting.name for each in cure if each.failed is None]
    if not unproven:
        return ""
    return f"not yet the fewest: time ran out before it was tried without {', '.join(unproven)} (give more --deadline)"


def _beside_a_working_default(seen: _Seen, default: TrialResult, gpus: tuple[str, ...]) -> Advice:
    speed = figure(default, seen.cpu_path)
    as_is = seen.as_is
    against_as_is = seen.comparisons.get(AS_IS)
    if as_is is not None and is_sound(as_is) and against_as_is is not None and against_as_is.wins:
        gain = percent_text(against_as_is.mean_gain)
        return _nothing(f"the inherited settings are {gain} faster than the default ({speed}): keep them", gpus)
    best = _winner(seen)
    if best is not None:
        won = seen.comparisons[best.candidate]
        against = f"{_gain(won)} against the default ({speed})"
        reason = f"trial '{best.candidate}' is {percent_text(won.mean_gain)} faster than the default: {_bound(won)}"
        return _settings(seen, best, against, reason, gpus)
    removed = tuple(name for name in default.unset if name in seen.inherited)
    if as_is is None or not removed:
        return _nothing(f"the default works, and {_nothing_beats(seen)}: {speed}, verified", gpus)
    if not is_sound(as_is) and as_is.outcome is not Outcome.SKIPPED:
        why = f"with the inherited settings trial '{AS_IS}' {ending(as_is)}"
        return _unset(removed, f"{why}; without them the default works: {speed}, verified", gpus)
    if against_as_is is not None and loses(against_as_is):
        slower = percent_text(against_as_is.mean_gain)
        why = f"the inherited settings cost speed ({slower}, {against_as_is.rounds} rounds)"
        return _unset(removed, f"{why}; without them the default reaches {speed}, verified", gpus)
    kept = "were not tried" if as_is.outcome is Outcome.SKIPPED else "do no clear harm and stay"
    why = f"the default works, and {_nothing_beats(seen)}: {speed}, verified"
    return _nothing(f"{why}; the inherited settings {kept}", gpus)


def _winner(seen: _Seen) -> TrialResult | None:
    """Return the sound candidate with the largest of the gains that were proved."""
    won = [trial for trial in seen.candidates if trial.candidate in seen.comparisons]
    won = [trial for trial in won if seen.comparisons[trial.candidate].wins]
    return max(won, key=lambda trial: (seen.comparisons[trial.candidate].mean_gain, trial.candidate), default=None)


def _settings(seen: _Seen, best: TrialResult, against: str, reason: str, gpus: tuple[str, ...]) -> Advice:
    """Return a candidate's settings, and the removal of what its trial ran without."""
    names = {name for name, _ in best.env}
    removed = tuple(name for name in best.unset if name in seen.inherited and name not in names)
    earned = f"trial '{best.candidate}': {figure(best, seen.cpu_path)}, verified; {against}"
    evidence = [(name, earned) for name, _ in best.env]
    evidence += [(name, f"trial '{best.candidate}' ran without it: {figure(best, seen.cpu_path)}") for name in removed]
    local = best.scope is Scope.ONE_NODE
    # A cure may hold what is the node's own, such as P2P, and what is the network's.
    one_node = [name for name, _ in best.env if local or name.startswith(NETWORK)] + list(_network(removed))
    return Advice(
        env=best.env,
        unset=removed,
        evidence=tuple(evidence),
        one_node_only=tuple(one_node),
        pg_timeout_s=NO_TIMEOUT,
        init_timeout_s=NO_TIMEOUT,
        gpus=gpus,
        reason=reason,
    )


def _unset(names: tuple[str, ...], why: str, gpus: tuple[str, ...]) -> Advice:
    evidence = tuple((name, why) for name in names)
    return Advice((), names, evidence, tuple(_network(names)), NO_TIMEOUT, NO_TIMEOUT, gpus, why)


def _nothing(reason: str, gpus: tuple[str, ...]) -> Advice:
    return Advice((), (), (), (), NO_TIMEOUT, NO_TIMEOUT, gpus, reason)


def _may_win(trial: TrialResult) -> bool:
    recommends = trial.candidate not in (DEFAULT, AS_IS) and bool(trial.env)
    return recommends and is_sound(trial) and not _names_loopback(trial)


def _names_loopback(trial: TrialResult) -> bool:
    """Tell whether a candidate chooses `lo`, which works on one node and breaks every other job."""
    values = [value for name, value in trial.env if name in INTERFACE_NAMES and not value.startswith("^")]
    words = [word.strip().lstrip("=").partition(":")[0] for value in values for word in value.split(",")]
    return "lo" in words


def _network(names: Iterable[str]) -> Iterable[str]:
    return (name for name in names if name.startswith(NETWORK))


def _speed(trial: TrialResult, cpu_path: bool) -> float:
    """Return the mean busbw at the decision sizes in GB/s."""
    results = decision_results(trial.results, cpu_path)
    speeds = [each.busbw_gb_s for each in results if not isinstance(each.busbw_gb_s, Gap)]
    return sum(speeds) / len(speeds) if speeds else 0.0


def _gain(comparison: Comparison) -> str:
    return f"{percent_text(comparison.mean_gain)} in {comparison.rounds} rounds"


def _bound(comparison: Comparison) -> str:
    return f"99 % sure of {percent_text(comparison.lower_bound)} over {comparison.rounds} fresh rounds"


def _nothing_beats(seen: _Seen) -> str:
    """Return what else was tried, as part of a sentence."""
    compared = [name for name in seen.comparisons if name != AS_IS]
    if compared:
        best = max(compared, key=lambda name: seen.comparisons[name].mean_gain)
        gain = percent_text(seen.comparisons[best].mean_gain)
        return f"nothing clearly beats it (best '{best}' {gain}; needs {percent_text(MIN_GAIN)} and to be sure)"
    if seen.default is not None and any(isinstance(each.busbw_gb_s, Gap) for each in seen.default.results):
        return "no speed was compared, since somebody else used the GPUs"
    return "nothing that was tried beats it" if seen.candidates else "nothing else had to be tried"
