"""The trials that worked, the workarounds for failing default settings, and the faults that these workarounds hide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from preflight.errors import NotApplicable, NotRun
from preflight.judge.check import Case
from preflight.judge.node_limits import is_contained, owner_of_run
from preflight.model import repairs
from preflight.model.finding import Blame, Severity
from preflight.model.nccl_variables import VARIABLES
from preflight.model.trial import AS_IS, DEFAULT, FAILED, Outcome, TrialResult
from preflight.search.settings.control import has_failed, intermittent, is_cure


@dataclass(frozen=True, slots=True)
class Hidden:
    """A fault that a workaround hides by turning off a transport, with the component to blame and the repair."""

    transport: str
    blame: Blame
    repair: str


P2P = Hidden("P2P", Blame.HOST, f"repair P2P: {repairs.P2P}. With NVLink, {repairs.NVLINKS}")
NVLS = Hidden("NVLS", Blame.FABRIC, f"repair NVLink SHARP: {repairs.FABRIC_MANAGER}")
SHM = Hidden("SHM", Blame.HOST, repairs.shm_room().machine)
IB = Hidden("IB", Blame.FABRIC, f"repair InfiniBand or RoCE: {repairs.RDMA.machine}")
IN_CONTAINER = {SHM: repairs.shm_room().container, IB: f"repair InfiniBand or RoCE: {repairs.RDMA.container}"}
ONE_NODE = "only one node ran"
FAULTS = (P2P, NVLS, IB, SHM)  # the one that says most about the machine first


def default_trial(trials: Iterable[TrialResult]) -> TrialResult | None:
    """Return the trial with default settings, or None if it was not run."""
    return next((trial for trial in trials if trial.candidate == DEFAULT), None)


def must_have_trials(case: Case) -> tuple[TrialResult, ...]:
    """Return the trials of the run; raise NotRun if none was started."""
    if all(trial.outcome is Outcome.SKIPPED for trial in case.trials):
        raise NotRun(next((trial.problem for trial in case.trials if trial.problem), "no trial was run"))
    return case.trials


def must_have_working_default(case: Case) -> TrialResult:
    """Return the trial with default settings. Raise NotRun if there is no such trial, NotApplicable if it failed."""
    must_have_trials(case)
    default = default_trial(case.trials)
    if default is None or default.outcome is Outcome.SKIPPED:
        raise NotRun("the default settings were not tried")
    if not works(default):
        raise NotApplicable("the default settings don't work")
    return default


def works(trial: TrialResult) -> bool:
    """Return whether `trial` ended well and all its data were right."""
    return trial.outcome is Outcome.OK and all(result.verified for result in trial.results)


def default_works(case: Case) -> bool:
    """Return whether the default settings worked in this run."""
    default = default_trial(case.trials)
    return default is not None and works(default)


def cures(case: Case) -> tuple[TrialResult, ...]:
    """Return the trials of the workarounds for failing default settings; () if the default settings work.

    After an A/B confirmation, only the confirmed workaround is returned. Otherwise these are the working trials,
    without those that set more than another working trial needs.
    """
    if default_works(case):
        return ()
    if case.control is not None:  # a cure is what was shown by going back
        chosen = [each for each in case.trials if each.candidate == case.control.chosen and works(each)]
        return tuple(chosen[-1:]) if is_cure(case.control, case.trials) else ()
    working = [trial for trial in case.trials if trial.candidate != DEFAULT and works(trial)]
    return tuple(trial for trial in working if not any(_set_by(other) < _set_by(trial) for other in working))


def _set_by(trial: TrialResult) -> frozenset[tuple[str, str]]:
    """Return the variables that were set in a trial by its configuration, or by the inherited environment."""
    return frozenset(trial.trial_env if trial.candidate == AS_IS else trial.env)


def proven_severity(case: Case) -> Severity:
    """Return the severity of what made a trial fail: WARN if the job works anyway or has a workaround, else FAIL."""
    is_open = case.control is None and any(works(trial) for trial in case.trials)
    return Severity.WARN if is_open or default_works(case) or cures(case) else Severity.FAIL


def is_seen_once(case: Case) -> bool:
    """Return whether the failure is not confirmed by a second one: it comes and goes, or was observed only once.

    The result is False if nothing could be repeated.
    """
    if case.control is None:
        return False
    reruns = case.control.reruns
    failures = sum(map(has_failed, case.trials)) + sum(each.outcome in FAILED for each in reruns)
    differing = () if is_cure(case.control, case.trials) else intermittent(case.trials, reruns)
    return failures < 2 or any(each.comes_and_goes for each in differing)


def hidden_faults(case: Case) -> tuple[Hidden, ...]:
    """Return the transports whose faults a workaround hides; () if there is a workaround that turns off none.

    A workaround may hide several faults: if P2P hangs and InfiniBand is broken as well, a workaround needs two
    settings. Of several workarounds, the one with the first fault in the order of FAULTS counts.
    """
    found = [_hidden_by(trial) for trial in cures(case)]
    if not found or set() in found:
        return ()
    first = min(found, key=lambda faults: min(map(FAULTS.index, faults)))
    here = IN_CONTAINER if any(map(is_contained, case.nodes)) else {}
    return tuple(
        replace(each, blame=owner_of_run(case) if each is SHM else each.blame, repair=here.get(each, each.repair))
        for each in FAULTS
        if each in first
    )


HIDES = {(each.name, each.off): fault for each in VARIABLES for fault in FAULTS if each.hides == fault.transport}


def _hidden_by(trial: TrialResult) -> set[Hidden]:
    found = {HIDES[name, value.lower()] for name, value in _set_by(trial) if (name, value.lower()) in HIDES}
    return found | {P2P for name, _ in _set_by(trial) if name == "NCCL_P2P_LEVEL"}
