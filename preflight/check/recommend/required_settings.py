"""The settings that the job needs because the default settings fail.

For each setting, this module finds the test results with and without the setting, the cost in speed, and the repair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from preflight.check.recommend.machine_context import MachineContext
from preflight.model.facts import Gap
from preflight.model.nccl_variables import BY_NAME, Variable
from preflight.model.trial import AS_IS, DEFAULT, FAILED, CollectiveResult, Outcome, Setting, TrialResult
from preflight.model.units import rate_text, size_text
from preflight.search.settings.duel import decision_results
from preflight.search.settings.minimise import env_of
from preflight.search.settings.search import shown_name

ENDINGS = {
    Outcome.OK: "gave no verified result",
    Outcome.HANG: "hung",
    Outcome.CRASH: "crashed",
    Outcome.WRONG_DATA: "gave wrong data",
    Outcome.INIT_ERROR: "failed at init",
    Outcome.NO_EFFECT: "had no effect",
    Outcome.SKIPPED: "did not run",
}
WARNING = "NCCL WARN "
Comment = tuple[str, str]

CONFIGURATION = "remove the failing lines from the files that NCCL reads (/etc/nccl.conf, ~/.nccl.conf, NCCL_CONF_FILE)"
INHERITED = (
    "keep the variable, because the job needs it. `grep -rn NAME ~/.bashrc /etc/profile.d` finds the file that sets it"
)


@dataclass(frozen=True, slots=True)
class RequiredSetting:
    """A setting that the job needs, and a failed test run that proves the need.

    The failed test run had all other settings of the working test run, but not this setting. `failed` is None if no
    failed test run proves the need.
    """

    setting: Setting
    failed: TrialResult | None


def why_needed(
    settings: Sequence[Setting], best: TrialResult, trials: Sequence[TrialResult]
) -> tuple[RequiredSetting, ...]:
    """Return the settings of the working test run `best`, each with the test run that failed without the setting.

    The failed test run had all other settings of `best`. If no failed test run proves the need for a setting, None
    replaces the test run.
    """
    there = dict(best.env).items()
    on = tuple(setting for setting in settings if setting.env and dict(setting.env).items() <= there)
    failures = [trial for trial in trials if trial.outcome in FAILED and trial.candidate != AS_IS]
    return tuple(RequiredSetting(setting, _failure_without(setting, on, failures)) for setting in on)


def _failure_without(setting: Setting, on: Sequence[Setting], failures: Sequence[TrialResult]) -> TrialResult | None:
    """Return a failed trial that had all settings of the working trial except `setting`, or None.

    If several failed trials qualify, return the trial with the fewest variables. The failed trial may have had
    additional settings. Without these, the trial would also have failed, so `setting` is needed.
    """
    rest = dict(env_of([each for each in on if each is not setting])).items()
    own = dict(setting.env).items()
    fit = [trial for trial in failures if rest <= dict(trial.env).items() and not own <= dict(trial.env).items()]
    return min(fit, key=lambda trial: (len(trial.env), trial.candidate), default=None)


def comments_of(
    required: RequiredSetting, best: TrialResult, cpu_path: bool, context: MachineContext, *, inherited: bool = False
) -> Iterator[Comment]:
    """Yield pairs of a variable and a comment line about the setting `required`.

    The comments give the reason for the setting, its cost in speed, and the repair of the cause.
    """
    # The cost comes from the test run `best`. If the setting has two variables, the comment of the second variable
    # refers to the first variable.
    (name, value), *others = sorted(required.setting.env, reverse=True)  # NCCL's before gloo's
    lines = [
        _without(required.failed),
        f"When set: {figure(best, cpu_path)}, verified (trial '{shown_name(best.candidate)}').",
        _cost(best, cpu_path, context),
    ]
    repair = repair_of(name, value, contained=context.is_contained(), inherited=inherited)
    lines += [f"Repair: {repair}." if repair else "", "" if inherited else _until(context)]
    yield from ((name, line) for line in lines if line)
    for other, _ in others:
        yield other, f"This setting is needed together with {name}."


def _without(failed: TrialResult | None) -> str:
    if failed is None:
        return "When unset: unknown, because time ran out before that trial."
    what = f"{ending(failed)}{_log_line(failed)}"
    if failed.candidate == DEFAULT:
        return f"When unset: the default settings {what}."
    return f"When unset: trial '{shown_name(failed.candidate)}' {what}."


def _log_line(failed: TrialResult) -> str:
    for end in failed.ranks:
        for line in end.log:
            _, is_warning, warning = line.text.partition(WARNING)
            if is_warning and warning not in failed.problem:
                return f'; rank {end.rank}\'s log: "{warning}"'
    return ""


def _cost(best: TrialResult, cpu_path: bool, context: MachineContext) -> str:
    """Return the comment on a workaround's cost in speed.

    The comment gives the share of the links' rated speed that the trial still reached. Return "" if the share is
    unknown.
    """
    result = deciding_result(best, cpu_path)
    if result is None or isinstance(result.busbw_gb_s, Gap):
        return ""
    expected = context.expected(result.collective, result.size_bytes)
    if expected is None or not expected.limit_gb_s:
        return ""
    share = result.busbw_gb_s / expected.limit_gb_s
    healthy = f"{rate_text(expected.low_gb_s)} is healthy"
    return f"Costs: the job gets {share:.0%} of the links' {rate_text(expected.limit_gb_s)}; {healthy}."


def _until(context: MachineContext) -> str:
    when = f" Measured on {learnt}." if (learnt := context.learnt()) else ""
    return f"After the repair, run `preflight check`. Delete each line that preflight no longer recommends.{when}"


def deciding_result(trial: TrialResult, cpu_path: bool) -> CollectiveResult | None:
    """Return the all_reduce result of `trial` at the largest size that comparisons use.

    If `trial` has no all_reduce result, another collective is used. Return None if `trial` timed no collective.
    """
    results = decision_results(trial.results, cpu_path)
    same = (each for each in results if each.collective is results[0].collective)
    return max(same, key=lambda result: result.size_bytes, default=None)


def figure(trial: TrialResult, cpu_path: bool) -> str:
    """Return the main result of `trial` as text, such as `all_reduce 1 GiB 240 GB/s`."""
    largest = deciding_result(trial, cpu_path)
    if largest is None:
        return "no timed collective"
    what = f"{largest.collective.value} {size_text(largest.size_bytes)}"
    if isinstance(largest.shown_gb_s, Gap):
        return what
    return f"{what} {rate_text(largest.shown_gb_s)}"


def ending(trial: TrialResult) -> str:
    """Return how a test run failed, as the second half of a sentence, such as `hung (...)`."""
    how = ENDINGS[trial.outcome]
    return f"{how} ({trial.problem})" if trial.problem else how


def repair_of(name: str, value: str, *, contained: bool, inherited: bool) -> str:
    """Return the repair that makes the setting `name`=`value` unnecessary, or "" if no repair is known.

    If `contained` is true, the repair changes the container runtime, otherwise the host.
    """
    # If `inherited` is true, the repair is to find the place that sets the variable.
    if inherited:
        return INHERITED.replace("NAME", name)
    if not value or name == "NCCL_CONF_FILE":
        return CONFIGURATION
    return BY_NAME.get(name, Variable(name)).repair.where(contained)
