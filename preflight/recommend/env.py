"""From trials and comparisons to settings: the fewest that were tried, worked and helped, each with what earned it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from preflight.model.advice import Advice
from preflight.model.facts import EnvVar, Gap
from preflight.model.trial import AS_IS, DEFAULT, Comparison, Outcome, Scope, TrialResult
from preflight.model.units import percent_text, rate_text, size_text
from preflight.plan.duel import MIN_GAIN, decision_results, is_sound
from preflight.recommend.compare import loses

NO_TIMEOUT = Gap("no safe timeout was computed")  # until with_timeouts() puts one in
# What these say holds for the network between this node's own ranks; between nodes it may be another one.
NETWORK = ("NCCL_SOCKET_", "NCCL_IB_", "NCCL_NET", "NCCL_CROSS_NIC", "GLOO_SOCKET_", "TP_SOCKET_")
ENDINGS = {
    Outcome.OK: "gave no verified result",
    Outcome.HANG: "hung",
    Outcome.CRASH: "crashed",
    Outcome.WRONG_DATA: "gave wrong data",
    Outcome.INIT_ERROR: "failed at init",
    Outcome.NO_EFFECT: "had no effect",
    Outcome.SKIPPED: "was not tried",
}
INTERFACE_NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the run has to decide with."""

    default: TrialResult | None
    as_is: TrialResult | None
    candidates: tuple[TrialResult, ...]  # sound ones that may be recommended
    comparisons: dict[str, Comparison]
    inherited: tuple[str, ...]
    cpu_path: bool


def recommend(
    trials: Sequence[TrialResult],
    comparisons: Sequence[Comparison],
    inherited: Sequence[EnvVar],
    cpu_path: bool,
    gpus: tuple[str, ...] = (),
) -> Advice:
    """Return the settings to source, or none and why.

    The default stays unless a comparison was won against it. Where the default fails, inherited settings that work are
    left alone; otherwise the sound candidate with the fewest settings is taken, the fastest of equals.
    """
    seen = _Seen(
        default=next((trial for trial in trials if trial.candidate == DEFAULT), None),
        as_is=next((trial for trial in trials if trial.candidate == AS_IS), None),
        candidates=tuple(trial for trial in trials if _may_win(trial)),
        comparisons={comparison.candidate: comparison for comparison in comparisons},
        inherited=tuple(variable.name for variable in inherited),
        cpu_path=cpu_path,
    )
    if seen.default is None:
        return _nothing("no trial ran, so nothing can be recommended", gpus)
    if is_sound(seen.default):
        return _beside_a_working_default(seen, seen.default, gpus)
    if seen.as_is is not None and is_sound(seen.as_is):
        return _nothing(f"the inherited settings are needed: without them the default {_ending(seen.default)}", gpus)
    if not seen.candidates:
        return _nothing(f"no setting that was tried works: the default {_ending(seen.default)}", gpus)
    best = min(seen.candidates, key=lambda trial: (len(trial.env), -_speed(trial, cpu_path), trial.candidate))
    against = f"the default {_ending(seen.default)}"
    return _settings(seen, best, against, f"trial '{best.candidate}' works, the default does not", gpus)


def _beside_a_working_default(seen: _Seen, default: TrialResult, gpus: tuple[str, ...]) -> Advice:
    figure = _figure(default, seen.cpu_path)
    as_is = seen.as_is
    against_as_is = seen.comparisons.get(AS_IS)
    if as_is is not None and is_sound(as_is) and against_as_is is not None and against_as_is.wins:
        gain = percent_text(against_as_is.mean_gain)
        return _nothing(f"the inherited settings are {gain} faster than the default ({figure}): keep them", gpus)
    best = _winner(seen)
    if best is not None:
        won = seen.comparisons[best.candidate]
        against = f"{_gain(won)} against the default ({figure})"
        reason = f"trial '{best.candidate}' is {percent_text(won.mean_gain)} faster than the default: {_bound(won)}"
        return _settings(seen, best, against, reason, gpus)
    removed = tuple(name for name in default.unset if name in seen.inherited)
    if as_is is None or not removed:
        return _nothing(f"the default works, and {_nothing_beats(seen)}: {figure}, verified", gpus)
    if not is_sound(as_is) and as_is.outcome is not Outcome.SKIPPED:
        why = f"with the inherited settings trial '{AS_IS}' {_ending(as_is)}"
        return _unset(removed, f"{why}; without them the default works: {figure}, verified", gpus)
    if against_as_is is not None and loses(against_as_is):
        slower = percent_text(against_as_is.mean_gain)
        why = f"the inherited settings cost speed ({slower}, {against_as_is.rounds} rounds)"
        return _unset(removed, f"{why}; without them the default reaches {figure}, verified", gpus)
    kept = "were not tried" if as_is.outcome is Outcome.SKIPPED else "do no clear harm and stay"
    why = f"the default works, and {_nothing_beats(seen)}: {figure}, verified"
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
    earned = f"trial '{best.candidate}': {_figure(best, seen.cpu_path)}, verified; {against}"
    evidence = [(name, earned) for name, _ in best.env]
    evidence += [(name, f"trial '{best.candidate}' ran without it: {_figure(best, seen.cpu_path)}") for name in removed]
    local = best.scope is Scope.ONE_NODE
    one_node = [name for name, _ in best.env if local] + list(_network(removed))
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


def _figure(trial: TrialResult, cpu_path: bool) -> str:
    """Return the number that stands for a trial: all_reduce at the largest decision size."""
    results = decision_results(trial.results, cpu_path)
    if not results:
        return "no timed collective"
    largest = max((each for each in results if each.collective is results[0].collective), key=lambda r: r.size_bytes)
    what = f"{largest.collective.value} {size_text(largest.size_bytes)}"
    if isinstance(largest.busbw_gb_s, Gap) or isinstance(largest.algbw_gb_s, Gap):
        return what
    return f"{what} {rate_text(largest.busbw_gb_s or largest.algbw_gb_s)}"  # one rank alone has no bus bandwidth


def _ending(trial: TrialResult) -> str:
    """Return how a trial failed, as the rest of a sentence."""
    how = ENDINGS[trial.outcome]
    return f"{how} ({trial.problem})" if trial.problem else how


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
