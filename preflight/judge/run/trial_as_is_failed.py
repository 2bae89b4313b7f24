from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from preflight.errors import NotApplicable, NotRun
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import first_line, ranks_text, steps_text
from preflight.judge.infiniband_paths import (
    FaultyEnd,
    IbPath,
    counted_errors,
    failed_paths,
    faulty_end,
    paths_text,
)
from preflight.judge.outside_cause import OutsideCause, outside_cause
from preflight.judge.seen_again import parts_of_ranks
from preflight.judge.symptoms import TOPOLOGY, blame_by_text, symptoms_in
from preflight.judge.workarounds import (
    cures,
    default_trial,
    hidden_faults,
    is_seen_once,
    must_have_trials,
    must_have_working_default,
    works,
)
from preflight.model.finding import REJECTS_A_NODE, Blame, Evidence, Finding, Severity, Unseen
from preflight.model.nccl_variables import assignment
from preflight.model.repairs import BEFORE_THE_JOB
from preflight.model.trial import AS_IS, FAILED, REPEATED, UNDER_LOAD, Outcome, RankEnd, TrialResult
from preflight.search.settings.duel import FAR_SLOWER, slowdown
from preflight.search.settings.search import shown_name

WORDS = {
    Outcome.HANG: "hung",
    Outcome.CRASH: "crashed",
    Outcome.INIT_ERROR: "could not start",
}
ENDED = {**WORDS, Outcome.WRONG_DATA: "got wrong data"}
STAGES = {"first": "the first collective"}
WAITING_OR_FINE = frozenset({"done", "killed"})
ONLY_SUFFERED = {"timeout": "timed out waiting", "connection": "lost a peer"}
MOST_ENDINGS_SHOWN = 8
LOOK_AT_PORT = (
    "`ibstat` (state, rate), /sys/class/infiniband/*/ports/*/counters, the cable, and the switch port with its "
    "partition or VLAN"
)


@run_check("trial-failed", blame=Blame.HOST, unseen=Unseen.ACCEPTANCE, reads=("trials",))
def trial_failed(case: Case) -> Findings:
    """The collectives work with default settings.

    Yields a FAIL if the default settings hung, crashed or did not start, or a WARN if other settings work. Yields a
    FAIL if the default settings worked at first but failed in a repetition. If another program or a limit ended a rank,
    the FAIL rejects no node.

    Can't see: failures that need more ranks, nodes or hours than the trial had.
    """
    must_have_trials(case)
    yield from _under_load(case)
    default = default_trial(case.trials)
    if default is None or default.outcome is Outcome.SKIPPED:
        raise NotRun("the default settings were not tried")
    if default.outcome not in WORDS:
        return
    outside = outside_cause(case, default)
    if outside is not None:
        yield _from_outside(default, describe(default), outside)
        return
    working, paths = cures(case), failed_paths(case, default)
    faulty = faulty_end(case, default, paths)
    finding = trial_failed.finding(
        Severity.WARN if working else Severity.FAIL,
        f"trial {default.candidate}",
        f"{paths_text(paths, faulty)}: {describe(default)}" if paths else describe(default),
        f"{_fix(case, default)}{_look_at(paths, faulty)}",
        *(path.evidence() for path in paths),
        *counted_errors(case, default),
        *evidence(default),
        *(_working(trial) for trial in working),
        blame=_blame(case, default),
        workaround=BEFORE_THE_JOB if hidden_faults(case) else "",
    )
    yield replace(finding, is_unconfirmed=is_seen_once(case), parts=parts_of_ranks(case, default.culprits))


def _under_load(case: Case) -> Findings:
    """Yield a FAIL if the default settings worked at first but failed in a repetition.

    No setting is a workaround for such a failure.
    """
    repeats = [each for each in case.trials if each.candidate.startswith(REPEATED)]
    failed = [each for each in repeats if each.outcome in WORDS]
    if failed:
        outside = outside_cause(case, failed[0])
        if outside is not None:
            yield _from_outside(failed[0], describe(failed[0]), outside)
            return
        how = " under load" if failed[0].candidate.startswith(UNDER_LOAD) else " when repeated"
        finding = trial_failed.finding(
            Severity.FAIL,
            f"trial {failed[0].candidate}",
            f"the default settings work at first but fail{how} ({len(failed)} of {len(repeats)} times): "
            f"{describe(failed[0])}",
            "check `dmesg | grep -iE 'xid|nvrm'`, and heat and power under load. `preflight check --profile burn "
            "--keep` keeps every log",
            *evidence(failed[0]),
            blame=blame_by_text(case, failed[0]) or Blame.HOST,
        )
        parts = parts_of_ranks(case, (rank for each in failed for rank in each.culprits))
        yield replace(finding, is_unconfirmed=len(failed) < 2, parts=parts)


def _from_outside(trial: TrialResult, problem: str, outside: OutsideCause) -> Finding:
    """Return a FAIL for a trial that failed because of a cause outside the run.

    The severity is FAIL even if other trials work, because no trial proves a workaround for an outside cause.
    """
    return trial_failed.finding(
        Severity.FAIL, f"trial {trial.candidate}", f"{problem}; {outside.why}", outside.fix, *outside.evidence,
        *evidence(trial), blame=outside.blame,
    )  # fmt: skip


def describe(trial: TrialResult) -> str:
    """Return one line that says how the test run failed."""
    stages = {stage for rank, stage in trial.stages if not trial.culprits or rank in trial.culprits}
    ending = f"{ranks_text(trial.culprits)} {ENDED.get(trial.outcome, trial.outcome.value)}"
    where = " or ".join(STAGES.get(each, each) for each in sorted(stages)) or "an unknown stage"
    return trial.problem or f"{ending} in {where}"


def evidence(trial: TrialResult) -> tuple[Evidence, ...]:
    """Return the evidence of a failed test run: its outcome, the log line with the cause, and how the ranks ended."""
    source = f"trial {trial.candidate}"
    alike: dict[str, list[RankEnd]] = {}
    for end in trial.ranks:
        if end.ended not in WAITING_OR_FINE:
            alike.setdefault(_how_it_ended(end), []).append(end)
    shown = tuple(Evidence(ranks_text(end.rank for end in ends), ending, source) for ending, ends in alike.items())
    proved = (Evidence(f"cause {each.cause}", each.proof, each.source) for each in trial.causes)
    return (Evidence("outcome", trial.outcome.value, source), *proved, *shown[:MOST_ENDINGS_SHOWN])


def _how_it_ended(end: RankEnd) -> str:
    """Return text that says how a rank ended.

    The text has the rank's message, unless the rank only waited or lost its peer.
    """
    if end.ended in ONLY_SUFFERED:
        return f"{ONLY_SUFFERED[end.ended]} in {STAGES.get(end.stage, end.stage)}"
    if end.ended == "stuck":
        return f"hung in {STAGES.get(end.stage, end.stage)}: no answer within the time limit"
    return f"{end.ended} in {STAGES.get(end.stage, end.stage)}: {first_line(end.detail) or 'no message'}"


def _working(trial: TrialResult) -> Evidence:
    settings = " ".join(assignment(*each) for each in trial.env)
    name = shown_name(trial.candidate)
    return Evidence("settings that work", settings or name, f"trial {name}" if settings else "its own trial")


def _blame(case: Case, default: TrialResult) -> Blame:
    blame = blame_by_text(case, default)
    if blame is not None:
        return blame
    hidden = hidden_faults(case)
    # What works on each node alone and not between them accuses no node: who it is takes more trials to tell.
    if hidden and not (len(case.nodes) > 1 and hidden[0].blame in REJECTS_A_NODE):
        return hidden[0].blame
    # A cure that switches no transport off (an interface's name, a neutralised nccl.conf) shows a sound machine.
    return Blame.CONFIGURATION if cures(case) or len(case.nodes) > 1 else Blame.HOST


def _look_at(paths: Sequence[IbPath], faulty: FaultyEnd | None) -> str:
    """Return a sentence that says which end of a failed path to check, or "" if no path is known."""
    if faulty:
        return f". Then check {faulty.end}: {LOOK_AT_PORT}"
    both = f". Then check both ends of the path: {LOOK_AT_PORT}. Only a third node can show which end is at fault"
    return both if paths else ""


def _fix(case: Case, default: TrialResult) -> str:
    hidden = hidden_faults(case)
    if hidden:
        return steps_text(each.repair for each in hidden)
    if cures(case):
        return f"{BEFORE_THE_JOB}, and add its lines to the site's settings"
    if symptoms_in(default, TOPOLOGY):
        return (
            "run `unset NCCL_TOPO_FILE` and remove it from nccl.conf, so that NCCL detects the topology. Or use the "
            "topology file of this machine type"
        )
    who = ranks_text(default.culprits) if default.culprits else "each rank"
    commands = "`dmesg | grep -iE 'xid|nvrm'` and `nvidia-smi -q`" if case.wants_gpus else "`dmesg | tail`"
    return (
        f"read the log of {who} in the directory that the output names. If the output names none, rerun with "
        f"--keep. Then run {commands}"
    )


@run_check("as-is-failed", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("trials",), bounds=(FAR_SLOWER,))
def as_is_failed(case: Case) -> Findings:
    """The inherited NCCL_*, GLOO_* and TORCH_* variables cause no failure or slowdown that the default settings don't.

    Yields a WARN if the run fails only with the inherited variables, or if on GPUs they cost more than half of the
    speed.

    Can't see: which one of several inherited variables is the cause.
    """
    default = must_have_working_default(case)
    as_is = [trial for trial in case.trials if trial.candidate == AS_IS]
    if not as_is:
        raise NotApplicable("no NCCL_*, GLOO_* or TORCH_* variable is inherited")
    for trial in as_is:
        if trial.outcome in FAILED:
            yield as_is_failed.finding(
                Severity.WARN,
                f"trial {trial.candidate}",
                f"with the inherited variables, the run fails ({describe(trial)}); without them, it works",
                "run `grep -rnE '(NCCL|GLOO|TORCH)_' ~/.bashrc ~/.profile /etc/profile.d` to find the file that sets "
                "them",
                *evidence(trial),
                workaround=f"{BEFORE_THE_JOB}, which unsets them",
            )
        elif case.wants_gpus and works(trial) and slowdown(trial, default) > FAR_SLOWER.value:
            names = ", ".join(default.unset) or "the inherited variables"
            yield as_is_failed.finding(
                Severity.WARN,
                f"trial {trial.candidate}",
                f"with the inherited variables, the largest collective is {slowdown(trial, default):.1f}x slower than "
                "with default settings",
                f"unset the variables that the job does not need: {names}. If preflight.env does not unset them, "
                f"compare them with `preflight check --profile standard`",
            )
