from __future__ import annotations

from preflight.errors import NotRun
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import fine_size, ranks_text, steps_text
from preflight.judge.seen_again import parts_of_ranks
from preflight.judge.workarounds import P2P, cures, default_trial, hidden_faults, must_have_trials
from preflight.model.collective import Collective
from preflight.model.finding import Blame, Evidence, Finding, Severity, Unseen
from preflight.model.repairs import BEFORE_THE_JOB, UNPROTECTED
from preflight.model.trial import AS_IS, DEFAULT, REPEATED, CollectiveResult, Outcome, TrialResult
from preflight.model.units import counted

NO_PART = (
    "Check pairs of GPUs with `--gpus A,B`, because several ranks got wrong data. The GPU that all bad pairs share is "
    "at fault"
)


@run_check("data-verified", blame=Blame.GPU, unseen=Unseen.ACCEPTANCE, reads=("trials",))
def data_verified(case: Case) -> Findings:
    """Every rank received the right data at every size: before and after the timed calls, and in some of them.

    With default settings, yields a FAIL for each collective with wrong data, or a WARN if there is a workaround. With
    other settings, yields an INFO. Wrong data in a repetition of the default settings is a FAIL.

    Can't see: corruption that needs more load, heat or time than the trials had.
    """
    # Wrong data silently ruins the model.
    must_have_trials(case)
    default = default_trial(case.trials)
    default_is_wrong = default is not None and default.outcome is Outcome.WRONG_DATA
    for trial in case.trials:
        if default_is_wrong and trial.candidate not in (DEFAULT, AS_IS):
            continue  # a step of the search that meets the same fault again
        wrong = [result for result in trial.results if not result.verified]
        for collective in Collective:
            of_it = [result for result in wrong if result.collective is collective]
            if of_it:
                yield _finding(case, trial, _problem(trial, collective, of_it), _evidence(trial, of_it))
        if trial.outcome is Outcome.WRONG_DATA and not wrong:
            problem = trial.problem or f"wrong data on {ranks_text(trial.culprits)}"
            yield _finding(case, trial, problem, (Evidence("outcome", "wrong_data", f"trial {trial.candidate}"),))
    if not any(trial.results for trial in case.trials):
        raise NotRun("no trial got data that could be checked")


def _finding(case: Case, trial: TrialResult, problem: str, evidence: tuple[Evidence, ...]) -> Finding:
    severity, blame = _weight(case, trial)
    hidden = hidden_faults(case)
    is_real = severity is not Severity.INFO
    steps = [*(() if cures(case) else ("start no job",)), *(each.repair for each in hidden)]
    steps += [f"before the repair, {UNPROTECTED}"] if P2P in hidden else []
    look = "`dmesg | grep -i xid`, `nvidia-smi -q -d ECC` and `dcgmi diag -r 3`" if case.wants_gpus else "memtest"
    find = f"{'if the data stays wrong' if hidden else 'to find the part that corrupts data'}, run {look}"
    if case.wants_gpus and len(trial.culprits) > 1 and not hidden:
        find += f". {NO_PART}"
    return data_verified.finding(
        severity,
        f"trial {trial.candidate}",
        problem,
        steps_text((*steps, find))
        if is_real
        else "do not use these settings, because preflight does not recommend them",
        *evidence,
        blame=blame,
        parts=parts_of_ranks(case, trial.culprits),
        workaround=BEFORE_THE_JOB if is_real and cures(case) else "",
    )


def _weight(case: Case, trial: TrialResult) -> tuple[Severity, Blame]:
    base = Blame.GPU if case.wants_gpus else Blame.HOST
    if len(case.nodes) > 1:  # each of them alone gets its data right, so which part between them is at fault is open
        base = Blame.CONFIGURATION
    if trial.candidate.startswith(REPEATED):
        return Severity.FAIL, base  # the default again, maybe when the GPUs are hot: no setting cures that
    if trial.candidate != DEFAULT:
        return Severity.INFO, base
    hidden = hidden_faults(case)
    return (Severity.WARN if cures(case) else Severity.FAIL), (hidden[0].blame if hidden else base)


def _problem(trial: TrialResult, collective: Collective, wrong: list[CollectiveResult]) -> str:
    first = min(wrong, key=lambda result: result.size_bytes)
    more = f"; {counted(len(wrong) - 1, 'other size')} also failed" if wrong[1:] else ""
    where = f"on {ranks_text(trial.culprits)}" if trial.culprits else "on an unknown rank"
    elements = f"{first.wrong_elements} wrong element{'' if first.wrong_elements == 1 else 's'}"
    return f"{collective.value} of {fine_size(first.size_bytes)} delivered {elements} {where}{more}"


def _evidence(trial: TrialResult, wrong: list[CollectiveResult]) -> tuple[Evidence, ...]:
    source = f"trial {trial.candidate}; each rank compared its result with the expected values"
    return tuple(
        Evidence(
            f"{each.collective.value} {fine_size(each.size_bytes)}",
            f"{counted(each.wrong_elements, 'wrong element')} over all ranks",
            source,
        )
        for each in wrong
    )
