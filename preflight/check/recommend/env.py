"""Choose the settings to recommend: the smallest tested set that works and helps.

Also choose the environment variables for `--gpus`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from preflight.check.recommend.compare import loses
from preflight.check.recommend.machine_context import MachineContext
from preflight.check.recommend.required_settings import RequiredSetting, comments_of, ending, figure, why_needed
from preflight.model.facts import EnvVar, Gap, Gpu, known
from preflight.model.nccl_variables import BY_NAME, assignment
from preflight.model.report import Advice
from preflight.model.timeout import SafeTimeout
from preflight.model.trial import AS_IS, DEFAULT, NO_CONTROL, Comparison, Control, Outcome, Scope, TrialResult
from preflight.model.units import percent_text, seconds_text
from preflight.search.settings.control import PROVISIONAL_TEXT, Proof, intermittent, is_cure, proof_of, proof_text
from preflight.search.settings.duel import FAR_SLOWER, MIN_GAIN, is_sound, slowdown
from preflight.search.settings.infiniband import SOCKETS
from preflight.search.settings.minimise import env_of
from preflight.timeout.frameworks import timeout_env

Pairs = tuple[tuple[str, str], ...]
NO_TIMEOUT = Gap("no safe timeout was computed")  # until with_timeouts() puts one in
# What these say holds for the network between this node's own ranks; between nodes it may be another one.
NETWORK = (
    "NCCL_MNNVL_", "NCCL_CONF_FILE", "NCCL_SOCKET_", "NCCL_IB_", "NCCL_NET", "NCCL_CROSS_NIC", "GLOO_SOCKET_",
    "TP_SOCKET_",
)  # fmt: skip
NETWORK_FAMILIES = frozenset({"ib", "plugin", "socket", "mnnvl"})
# What acts between the GPUs of one node only: ncclTopoCheckP2p (graph/paths.cc) reads the first two, and shmCanConnect
# (transport/shm.cc) wants equal hosts. NCCL_CUMEM_* is none of them: memory that nodes share over NVLink is cuMem's.
# Anything else that was inherited may be what several nodes need: a cloud's network profile.
WITHIN_A_NODE = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_", "CUDA_", "TORCH_", "PYTORCH_")
NO_CONTEXT = MachineContext()
INTERFACE_NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


@dataclass(frozen=True, slots=True)
class _TrialsOfRun:
    """The trials, comparisons and inherited variables from which the recommendation is made."""

    trials: tuple[TrialResult, ...]
    default: TrialResult | None
    as_is: TrialResult | None
    candidates: tuple[TrialResult, ...]  # sound ones that may be recommended
    comparisons: dict[str, Comparison]
    inherited: tuple[str, ...]
    cpu_path: bool
    context: MachineContext
    control: Control


def recommend(
    trials: Sequence[TrialResult],
    comparisons: Sequence[Comparison],
    inherited: Sequence[EnvVar],
    cpu_path: bool,
    context: MachineContext = NO_CONTEXT,
    control: Control = NO_CONTROL,
) -> Advice:
    """Return the settings to recommend, or no settings and the reason."""
    # A workaround is recommended only if repeated test runs with and without the workaround (`control`) support it. If
    # the same settings both worked and failed, nothing else is recommended. If the default settings work, another
    # configuration is recommended only if it won a comparison. If the default settings fail but the inherited settings
    # work, the needed inherited settings are kept. If the default and the inherited settings fail, the settings that
    # the search found are recommended.
    run = _TrialsOfRun(
        trials=tuple(trials),
        default=next((trial for trial in trials if trial.candidate == DEFAULT), None),
        as_is=next((trial for trial in trials if trial.candidate == AS_IS), None),
        candidates=tuple(trial for trial in trials if _may_win(trial)),
        comparisons={comparison.candidate: comparison for comparison in comparisons},
        inherited=tuple(variable.name for variable in inherited),
        cpu_path=cpu_path,
        context=context,
        control=control,
    )
    if run.default is None:
        return _advice("no trial ran, so nothing can be recommended")
    comes_and_goes = intermittent(run.trials, control.reruns)
    if comes_and_goes and not is_cure(control, trials):
        return _advice(f"nothing is recommended, because the fault comes and goes: {comes_and_goes[0].text()}")
    if is_sound(run.default):
        return _beside_a_working_default(run, run.default)
    return _beside_a_failing_default(run, run.default)


def _beside_a_failing_default(run: _TrialsOfRun, default: TrialResult) -> Advice:
    as_is_works = run.as_is is not None and is_sound(run.as_is)
    if not run.candidates and not as_is_works:
        again = [each for each in run.control.reruns if each.candidate == DEFAULT]
        took_s = default.duration_s + sum(each.duration_s for each in again)
        tries = f", in each of {len(again) + 1} tries ({seconds_text(took_s)} in all)" if again else ""
        longer = ". The fault may be temporary" if again else ""
        return _advice(f"none of the tested settings work. The default settings {ending(default)}{tries}{longer}")
    chosen = [each for each in run.trials if each.candidate == run.control.chosen and is_sound(each)]
    if not chosen or proof_of(run.control, run.trials) is Proof.OPEN:
        why = "time ran out before a run without them failed again (raise --deadline)"
        return _advice(
            f"nothing is recommended: the default settings {ending(default)}, and other settings work, but {why}"
        )
    best = chosen[-1]
    if as_is_works:
        return _with_proof(run, default, _inherited_that_are_needed(run, default, best))
    return _with_proof(run, default, _cured_by(run, default, best))


def _with_proof(run: _TrialsOfRun, default: TrialResult, advice: Advice) -> Advice:
    """Return the advice with the result of the A/B confirmation as evidence of every variable."""
    shown = proof_text(run.control, default)
    control = [(name, f"Control: {shown}.") for name, _ in advice.env]
    is_proved = proof_of(run.control, run.trials) is Proof.PROVED
    reason = advice.reason if is_proved or not advice.env else f"{advice.reason}; {PROVISIONAL_TEXT}"
    return replace(advice, reason=reason, evidence=_by_name((*advice.evidence, *control)))


def _cured_by(run: _TrialsOfRun, default: TrialResult, best: TrialResult) -> Advice:
    cure = why_needed(run.context.settings, best, run.trials)
    if not cure:
        sentence = f"trial '{best.candidate}' works, but the default settings fail"
        advice = _settings(run, best, f"the default settings {ending(default)}", sentence)
        return replace(advice, evidence=_by_name((*advice.evidence, *_price_of_sockets(run, best))))
    advice = _settings(run, best, "", _cure_reason(cure, best, run.cpu_path))
    comments = [line for required in cure for line in comments_of(required, best, run.cpu_path, run.context)]
    comments += _price_of_sockets(run, best)
    removed = [(name, text) for name, text in advice.evidence if name in advice.unset]
    local = {name for each in cure if each.setting.scope is Scope.ONE_NODE for name, _ in each.setting.env}
    one_node = tuple(dict.fromkeys([*(name for name, _ in best.env if name in local), *advice.one_node_only]))
    return replace(advice, evidence=_by_name((*comments, *removed)), one_node_only=one_node)


def _price_of_sockets(run: _TrialsOfRun, best: TrialResult) -> Pairs:
    """Return the evidence on how much speed the job loses with sockets instead of RDMA.

    Return () if `best` has settings other than those for sockets, or if `best` is valid for one node only.
    """
    if best.scope is not Scope.ANYWHERE or not best.env or not {name for name, _ in best.env} <= SOCKETS:
        return ()
    over_rdma = next((each for each in run.candidates if "NCCL_IB_HCA" in dict(each.env)), None)
    beside = (
        f"trial '{over_rdma.candidate}': {figure(over_rdma, run.cpu_path)}"
        if over_rdma
        else "no other transport worked"
    )
    return ((best.env[0][0], f"Costs: {best.reason}. Sockets: {figure(best, run.cpu_path)}; {beside}."),)


def _inherited_that_are_needed(run: _TrialsOfRun, default: TrialResult, best: TrialResult) -> Advice:
    """Return advice to keep the inherited settings that the job needs.

    Other inherited settings stay as they are if they do no harm.
    """
    inherited = run.context.inherited
    with_env = replace(best, env=env_of(inherited)) if best.candidate == AS_IS else best
    cure = why_needed(inherited, with_env, run.trials)
    why = f"inherited settings are needed, because the default settings {ending(default)}"
    unproven = best.candidate == AS_IS and any(each.failed is None for each in cure)
    if not cure or unproven or _names_loopback(with_env):
        return _advice(why)
    comments = [line for each in cure for line in comments_of(each, best, run.cpu_path, run.context, inherited=True)]
    required = {name for each in cure for name, _ in each.setting.env}
    others = ", ".join(name for name in run.inherited if name not in required)
    reason = "; ".join(filter(None, (why, f"the inherited {others} can be unset" if others else "", _open(cure))))
    one_node = _network(name for name, _ in with_env.env)
    return _advice(reason, env=with_env.env, evidence=_by_name(comments), one_node_only=one_node)


def _cure_reason(cure: Sequence[RequiredSetting], best: TrialResult, cpu_path: bool) -> str:
    names = [" ".join(assignment(*one) for one in each.setting.env) for each in cure]
    work = "work" if len(names) > 1 else "works"
    sentence = f"the default settings fail; {_and(names)} {work} ({figure(best, cpu_path)}, verified)"
    all_needed = "each setting is needed, because a trial without it failed"
    return "; ".join(filter(None, (sentence, _open(cure) or (all_needed if len(names) > 1 else ""))))


def _by_name(comments: Iterable[tuple[str, str]]) -> Pairs:
    """Return one (name, text) pair for each variable, with all lines about the variable joined.

    The evidence is an object in JSON, so a name can occur only once.
    """
    lines: dict[str, list[str]] = defaultdict(list)
    for name, line in comments:
        lines[name].append(line)
    return tuple((name, "\n".join(of_name)) for name, of_name in lines.items())


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _open(cure: Sequence[RequiredSetting]) -> str:
    unproven = [each.setting.name for each in cure if each.failed is None]
    if not unproven:
        return ""
    return f"fewer settings may be enough: time ran out before a trial without {', '.join(unproven)} (raise --deadline)"


def _beside_a_working_default(run: _TrialsOfRun, default: TrialResult) -> Advice:
    speed = figure(default, run.cpu_path)
    as_is = run.as_is
    against_as_is = run.comparisons.get(AS_IS)
    if as_is is not None and is_sound(as_is) and against_as_is is not None and against_as_is.wins:
        gain = percent_text(against_as_is.mean_gain)
        return _advice(
            f"keep the inherited settings, because they are {gain} faster than the default settings ({speed})"
        )
    best = _winner(run)
    if best is not None:
        won = run.comparisons[best.candidate]
        gain, sure_of = percent_text(won.mean_gain), percent_text(won.lower_bound)
        against = f"{gain} in {won.rounds} rounds vs the default settings ({speed})"
        reason = f"trial '{best.candidate}' is {gain} faster than the default settings: "
        reason += f"at least {sure_of} with 99% confidence ({won.rounds} rounds)"
        return _settings(run, best, against, reason)
    removed = tuple(name for name in default.unset if name in run.inherited)
    if as_is is None or not removed:
        return _advice(f"the default settings work ({speed}, verified), and {_nothing_beats(run)}")
    if not is_sound(as_is) and as_is.outcome is not Outcome.SKIPPED:
        why = f"with the inherited settings trial '{AS_IS}' {ending(as_is)}"
        return _unset(removed, f"{why}; without them the default settings work: {speed}, verified")
    if against_as_is is not None and loses(against_as_is):
        slower = percent_text(against_as_is.mean_gain)
        why = f"the inherited settings are slower ({slower}, {against_as_is.rounds} rounds)"
        return _unset(removed, f"{why}; without them the default settings reach {speed}, verified")
    if as_is.outcome is Outcome.SKIPPED:
        kept = "were not tried"
    elif against_as_is is not None:
        kept = "are not clearly slower, so preflight keeps them"
    elif slowdown(as_is, default) > FAR_SLOWER.value:
        kept = (
            f"reached {figure(as_is, run.cpu_path)} in one trial; preflight keeps them, because no comparison has "
            f"confirmed this speed"
        )
    else:
        kept = "work too, so preflight keeps them; their speed was not compared"
    why = f"the default settings work ({speed}, verified), and {_nothing_beats(run)}"
    return _advice(f"{why}; the inherited settings {kept}")


def _winner(run: _TrialsOfRun) -> TrialResult | None:
    """Return the trial of the configuration with the largest proved gain in speed.

    Return None if no configuration is proved to be faster.
    """
    gains = {comparison.candidate: comparison.mean_gain for comparison in run.comparisons.values() if comparison.wins}
    won = (trial for trial in run.candidates if trial.candidate in gains)
    return max(won, key=lambda trial: (gains[trial.candidate], trial.candidate), default=None)


def _settings(run: _TrialsOfRun, best: TrialResult, against: str, reason: str) -> Advice:
    """Return advice to set the variables of the trial `best`, and to unset variables that this trial ran without.

    Only inherited variables are unset.
    """
    names = {name for name, _ in best.env}
    removed = tuple(name for name in best.unset if name in run.inherited and name not in names)
    earned = f"trial '{best.candidate}': {figure(best, run.cpu_path)}, verified; {against}"
    evidence = [(name, earned) for name, _ in best.env]
    evidence += [(name, f"trial '{best.candidate}' ran without it: {figure(best, run.cpu_path)}") for name in removed]
    local = best.scope is Scope.ONE_NODE
    # A cure may hold what is the node's own, such as P2P, and what is the network's.
    one_node = [name for name, _ in best.env if local or _is_of_network(name)] + list(_beyond_node(removed))
    return _advice(reason, env=best.env, unset=removed, evidence=tuple(evidence), one_node_only=one_node)


def _unset(names: tuple[str, ...], why: str) -> Advice:
    evidence = tuple((name, why) for name in names)
    return _advice(why, unset=names, evidence=evidence, one_node_only=_beyond_node(names))


def _advice(
    reason: str,
    *,
    env: Pairs = (),
    unset: tuple[str, ...] = (),
    evidence: Pairs = (),
    one_node_only: Iterable[str] = (),
) -> Advice:
    """Return advice that sets and removes only the given variables."""
    return Advice(env, unset, evidence, tuple(one_node_only), NO_TIMEOUT, NO_TIMEOUT, (), reason)


def _may_win(trial: TrialResult) -> bool:
    recommends = trial.candidate not in (DEFAULT, AS_IS) and bool(trial.env)
    return recommends and is_sound(trial) and not _names_loopback(trial)


def _names_loopback(trial: TrialResult) -> bool:
    """Return whether a configuration chooses the interface `lo`, which breaks every job on several nodes."""
    values = [value for name, value in trial.env if name in INTERFACE_NAMES and not value.startswith("^")]
    words = [word.strip().lstrip("=").partition(":")[0] for value in values for word in value.split(",")]
    return "lo" in words


def _network(names: Iterable[str]) -> Iterable[str]:
    return filter(_is_of_network, names)


def _is_of_network(name: str) -> bool:
    known = BY_NAME.get(name)
    return name.startswith(NETWORK) or (known is not None and bool(NETWORK_FAMILIES.intersection(known.families)))


def _beyond_node(removed: Iterable[str]) -> Iterable[str]:
    return (name for name in removed if not name.startswith(WITHIN_A_NODE))


def _nothing_beats(run: _TrialsOfRun) -> str:
    """Return a clause which says that no other configuration is faster.

    If configurations were compared, the clause names the best of these.
    """
    compared = [name for name in run.comparisons if name != AS_IS]
    if compared:
        best = max(compared, key=lambda name: run.comparisons[name].mean_gain)
        gain = percent_text(run.comparisons[best].mean_gain)
        return f"no other configuration is clearly faster (best: '{best}', {gain}; needed: {percent_text(MIN_GAIN)})"
    if run.default is not None and any(isinstance(each.busbw_gb_s, Gap) for each in run.default.results):
        return "no speed was compared, because another job used the GPUs"
    return "no other configuration is faster" if run.candidates else "no other configuration needed a trial"


def gpu_env(
    asked: bool, visible: str | None, chosen: Sequence[Gpu], listed: Sequence[Gpu], some_closed: bool
) -> tuple[tuple[str, str], ...]:
    """Return the environment variables that restrict the job to the GPUs of `--gpus`.

    Return () if `--gpus` was not given (`asked`), if all GPUs are chosen, or if CUDA_VISIBLE_DEVICES is set
    (`visible`).
    """
    # The variables contain the CUDA index of each GPU if the CUDA indices are known, otherwise UUIDs. The CUDA indices
    # are unknown if a bus address is unknown, or if CUDA can't open some of the GPUs (`some_closed`).
    if not asked or visible is not None or not 0 < len(chosen) < len(listed):
        return ()
    places = None if some_closed else cuda_places(listed)
    names = [known(gpu.uuid) if places is None else str(places[gpu.nvml_index]) for gpu in chosen]
    return ((VISIBLE, ",".join(names)), ORDER)


def cuda_places(listed: Sequence[Gpu]) -> dict[int, int] | None:
    """Return {NVML index: CUDA index} of the GPUs in `listed`, for CUDA_DEVICE_ORDER=PCI_BUS_ID.

    Return None if a bus address is unknown or occurs twice.
    """
    # CUDA_DEVICE_ORDER=PCI_BUS_ID counts the GPUs by bus address.
    addresses = {gpu.bdf for gpu in listed}
    if any(isinstance(address, Gap) for address in addresses) or len(addresses) < len(listed):
        return None
    ordered = sorted(listed, key=lambda gpu: [int(part, 16) for part in re.split("[.:]", known(gpu.bdf))])
    return {gpu.nvml_index: place for place, gpu in enumerate(ordered)}


def with_timeouts(advice: Advice, safe: SafeTimeout, versions: Mapping[str, str], dialect: str) -> Advice:
    """Return `advice` with the timeouts in `safe` and the environment variables that set the timeouts.

    `dialect` names the library whose variables the backend reads, for example "nccl".
    """
    # If `dialect` is "nccl", a variable for torch's flight recorder may be added.
    return replace(
        advice,
        pg_timeout_s=safe.pg_timeout_s,
        init_timeout_s=safe.init_timeout_s,
        timeout_env=timeout_env(safe, versions, dialect),
        timeout_reason=safe.verdict,
    )
