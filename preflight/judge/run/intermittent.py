from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from preflight.errors import NotApplicable, NotRun
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import first_line
from preflight.judge.outside_cause import outside_cause
from preflight.judge.seen_again import parts_of_ranks
from preflight.judge.symptoms import blame_by_text
from preflight.judge.workarounds import default_trial, must_have_trials
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.trial import FAILED, Outcome
from preflight.search.settings.control import PROVED_ODDS, Tally, Way, has_failed, is_cure
from preflight.search.settings.control import intermittent as ended_differently


@run_check("intermittent", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("trials", "control"), bounds=(PROVED_ODDS,))
def intermittent(case: Case) -> Findings:
    """Test runs with the same settings always end in the same way.

    Yields a FAIL if the same settings sometimes worked and sometimes failed, or failed in different ways or places.
    Yields nothing if another setting prevents the failure.

    Can't see: a fault that is too rare for the number of repetitions; trials are repeated only after a failure.
    """
    # Wrong data rejects the node at once. After an intermittent hang or crash, the verdict is unknown unless the last
    # runs (--history) also failed.
    must_have_trials(case)
    default = default_trial(case.trials)
    if case.control is None or all(each.outcome is Outcome.SKIPPED for each in case.control.reruns):
        if default is None or not has_failed(default):
            raise NotApplicable("the default settings did not fail, so no trial was repeated")
        raise NotRun("the failed trial was not repeated")
    found = ended_differently(case.trials, case.control.reruns)
    if not found or is_cure(case.control, case.trials):
        return
    ways = {way for tally in found for way in tally.ways}
    failed = next((trial for trial in case.trials if has_failed(trial)), None)
    if failed is not None and outside_cause(case, failed) is not None:
        return  # the cause is outside the run; `trial-failed` reports it
    by_text = blame_by_text(case, failed) if failed is not None else None
    is_wrong = Way.WRONG_DATA in ways
    comes_and_goes = any(tally.comes_and_goes for tally in found)
    how = "the fault comes and goes" if comes_and_goes else "the same settings fail differently each time"
    finding = intermittent.finding(
        Severity.FAIL,
        f"trial {found[0].candidate}",
        f"{how}: {found[0].text()}; no tested setting prevents it",
        "start no job here. Run the check three times with `--history DIR` to see whether one GPU is at fault. "
        "`preflight check --profile burn` tests for longer. `dmesg | grep -iE 'xid|nvrm'`, heat and power under load "
        "may show the cause",
        *(evidence for tally in found for evidence in _evidence(tally)),
        blame=by_text if by_text and not is_wrong else _blame(case, is_wrong=is_wrong),
    )
    culprits = [each.culprits for each in case.trials if each.outcome in FAILED]
    culprits += [each.culprits for each in case.control.reruns if each.outcome in FAILED]
    parts = parts_of_ranks(case, (rank for ranks in culprits for rank in ranks))
    yield replace(finding, is_unconfirmed=comes_and_goes and not is_wrong, parts=parts)


def _blame(case: Case, *, is_wrong: bool) -> Blame:
    """Return the fault domain of the failure.

    With several nodes, no node is blamed, because each node works alone.
    """
    if len(case.nodes) > 1:
        return Blame.CONFIGURATION
    return Blame.GPU if is_wrong and case.wants_gpus else Blame.HOST


def _evidence(tally: Tally) -> Iterator[Evidence]:
    source = f"trial {tally.candidate} and its repetitions"
    yield Evidence("how it ended", ", ".join(way.value for way in tally.ways), source)
    for problem in dict.fromkeys(map(first_line, tally.problems)):
        yield Evidence("problem", problem, source)
