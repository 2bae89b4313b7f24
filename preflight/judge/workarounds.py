"""Find test runs that worked, workarounds for failing default settings, and faults that workarounds hide."""

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
    """Return the test run with default settings, or None if the default settings were not tried."""
    return next((trial for trial in trials if trial.candidate == DEFAULT), None)


def must_have_trials(case: Case) -> tuple[TrialResult, ...]:
    """Return all test runs. Raise NotRun if no test run was started."""
    if all(trial.outcome is Outcome.SKIPPED for trial in case.trials):
        raise NotRun(next((trial.problem for trial in case.trials if trial.problem), "no trial was run"))
    return case.trials


def must_have_working_default(case: Case) -> TrialResult:
    """Return the test run with default settings.

    Raise NotRun if there is no such test run. Raise NotApplicable if the test run failed.
    """
    must_have_trials(case)
    default = default_trial(case.trials)
    if default is None or default.outcome is Outcome.SKIPPED:
        raise NotRun("the default settings were not tried")
    if not works(default):
        raise NotApplicable("the default settings don't work")
    return default


def works(trial: TrialResult) -> bool:
    """Return whether the test run succeeded and all its data were right."""
    return trial.outcome is Outcome.OK and all(result.verified for result in trial.results)


def default_works(case: Case) -> bool:
    """Return whether the default settings worked in this run."""
    default = default_trial(case.trials)
    return default is not None and works(default)


def cures(case: Case) -> tuple[TrialResult, ...]:
    """Return the successful test runs of workarounds, or () if the default settings work.

    Workarounds with more settings than needed are left out.
    """
    # After an A/B confirmation, only the confirmed workaround is returned.
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
    """Return WARN if the job works with default settings or with a workaround, else FAIL."""
    is_open = case.control is None and any(works(trial) for trial in case.trials)
    return Severity.WARN if is_open or default_works(case) or cures(case) else Severity.FAIL


def is_seen_once(case: Case) -> bool:
    """Return whether a failure is unconfirmed, because it occurred only once or comes and goes.

    Return False if no test run could be repeated.
    """
    if case.control is None:
        return False
    reruns = case.control.reruns
    failures = sum(map(has_failed, case.trials)) + sum(each.outcome in FAILED for each in reruns)
    differing = () if is_cure(case.control, case.trials) else intermittent(case.trials, reruns)
    return failures < 2 or any(each.comes_and_goes for each in differing)


def hidden_faults(case: Case) -> tuple[Hidden, ...]:
    """Return the faults that a workaround hides, or () if a workaround turns off no transport."""
    # If there are several workarounds, the workaround with the first fault in FAULTS counts.
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
