"""Build the report of a run, even if the run was cut short."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from preflight import __version__
from preflight.check.look_again import LookedAgain, look_again
from preflight.check.recommend.compare import compare
from preflight.check.recommend.env import VISIBLE, gpu_env, recommend, with_timeouts
from preflight.check.recommend.machine_context import MachineContext
from preflight.check.request import Request
from preflight.check.run_record import RunRecord
from preflight.errors import Interrupted, PreflightError
from preflight.explain.failed_trial import with_cause
from preflight.fleet.changes import changes
from preflight.judge.check import (
    Case,
    CheckResults,
    RunCheck,
    all_checks,
    found_by,
    not_run,
    of_several_nodes,
    run_checks,
)
from preflight.judge.outside_cause import traced
from preflight.judge.phases import RunProgress, phases_of
from preflight.judge.policy import apply_policy
from preflight.judge.seen_again import weighed
from preflight.judge.speed_judges import beside_baseline, is_beside_baseline, judged_by
from preflight.judge.verdict import Decision, decide, unanswered
from preflight.judge.workarounds import default_trial, works
from preflight.model.change import Change
from preflight.model.facts import EnvVar, Gap, known
from preflight.model.finding import Finding
from preflight.model.job import Job
from preflight.model.joint import NO_JOINT_PHASE, JointPhase, SoloResult
from preflight.model.parts import parts_of_node
from preflight.model.profile import BY_ORDER, LEFT_OUT, SKIPPED, GpuTests
from preflight.model.repairs import SOURCE_ENV
from preflight.model.report import Advice, NodeVerdict, Report, Verdict
from preflight.model.storage import NO_DIRECTORY
from preflight.model.trial import Comparison, Control, Outcome, RailTest, TrialResult, without_speeds
from preflight.search.gpus.gpu_set import closed_gpus
from preflight.search.gpus.link_speeds import NO_GPU_TRIED, expected_of_trials
from preflight.search.nodes.joint_plan import advice_of_nodes, hosts_by_rank, with_hosts
from preflight.search.settings.environment import inherited_settings, matters
from preflight.search.settings.rdma import rails_to_try
from preflight.system.kernel_queries import own_limits
from preflight.system.known_bugs import load_known_bugs
from preflight.system.links import load_links
from preflight.timeout.safe_timeout import safe_timeout
from preflight.timeout.timings import nccl_settings, timings

KILLED = "preflight was killed, or the machine went down, before it could answer"


def judged_or_not(run: RunRecord, joint: JointPhase) -> tuple[Report, Interrupted | None]:
    """Return the report of `run`, and the signal that cut the run short, or None.

    If an error or a signal stops the judging of the results, the report lacks only the judgment.
    """
    try:
        return _judged(run, joint, look_again(run)), run.launch.interrupted
    except Interrupted as error:
        run, why = replace(run, launch=replace(run.launch, interrupted=error)), f"{error} while judging"
    except Exception as error:  # noqa: BLE001  what was tried is not lost with it
        why = " ".join(f"a defect in preflight: {type(error).__name__}: {error}".split())
    return unjudged(run, why, why), run.launch.interrupted


def solo_result_of(run: RunRecord, free_bytes_per_rank: int) -> SoloResult:
    """Return the results of this node's own test runs, which are sent to node 0."""
    path = run.path
    report = _judged(run, NO_JOINT_PHASE, look_again(run))
    return SoloResult(
        host=run.node.host, ranks=path.world_size, backend=path.backend, dialect=path.dialect,
        is_cpu_path=not path.wants_gpus, problem=run.launch.solo_problem, trials=report.trials,
        findings=report.findings, skipped_checks=report.skipped_checks, checks=report.checks, env=report.advice.env,
        inherits_tuning=any(matters(name, path.dialect) for name, _ in run.inherited), netif="",
        free_bytes_per_rank=free_bytes_per_rank, gpus=run.chosen, facts=run.node,
    )  # fmt: skip


def _judged(run: RunRecord, joint: JointPhase, seen: LookedAgain) -> Report:
    since = time.monotonic()
    blank = unjudged(run, run.launch.problem, "")
    disturbed = seen.disturbed
    trials = _trials(run, joint, disturbed)
    case = _case(run, joint, trials, seen)
    findings, skipped, ran = _checked(run, joint, case)
    comparisons = () if disturbed else tuple(compare(duel) for duel in run.launch.duels)
    advice = _advice(run, joint, case, comparisons, blank.created_at.partition("T")[0], seen.versions)
    decision = decide(
        case, findings, skipped, trials, advice, run.launch.problems,
        strict=run.request.strict, accept=run.request.accept, cpu_path=not run.path.wants_gpus,
        refuses_sockets=bool(run.request.starts) and not run.request.starts_over_sockets,
    )  # fmt: skip
    if decision.exit_code:
        findings = tuple(without_file(each, advice) for each in findings)
    gpu_tests = case.hardware
    assert gpu_tests is not None
    good_at, changed = ("", ()) if _is_good(decision) else _since_good(run)
    return replace(
        blank,
        good_at=good_at,
        changed=changed,
        verdict=decision.verdict,
        node_verdict=decision.node_verdict,
        exit_code=run.launch.interrupted.exit_code if run.launch.interrupted else decision.exit_code,
        headline=decision.headline,
        world_size=case.world_size,
        nodes=tuple(solo.facts for solo in joint.solo_results.values()) or (run.node,),
        trials=trials,
        comparisons=comparisons,
        left_out=run.plan.left_out_of(trials),
        findings=findings,
        skipped_checks=skipped,
        problems=run.launch.problems,
        advice=advice,
        durations_s=_durations(run, ("judging", time.monotonic() - since)),
        checks=found_by(ran, findings),
        between=joint.network or blank.between,
        expected=expected_of_trials(load_links(), run.node, run.chosen, trials) if run.chosen else NO_GPU_TRIED,
        p2p=gpu_tests if isinstance(gpu_tests, Gap) else gpu_tests.pairs,
        gpu_tests=gpu_tests if isinstance(gpu_tests, Gap) else gpu_tests.gpus,
        counters=gpu_tests if isinstance(gpu_tests, Gap) else gpu_tests.counters,
        judged_by=judged_by(case),
        beside_baseline=beside_baseline(case) if is_beside_baseline(case) else (),
        isolation=run.launch.isolation,
        control=_control(run, joint),
        rails=run.launch.rails,
        nccl_diagnosis=run.launch.diagnoses,
        storage=run.storage or NO_DIRECTORY,
        parts_tried=run.parts_tried,
    )


def _since_good(run: RunRecord) -> tuple[str, tuple[Change, ...]]:
    """Return when this node was last good, and the changes since then that may matter.

    The time is "" if no earlier report says that the node was good.
    """
    parts = parts_of_node(run.node)
    for report in reversed(run.past):
        then = next((node for node in report.nodes if parts & parts_of_node(node)), None)
        if _is_good(report) and then is not None:
            found = changes(replace(then, host=run.node.host), run.node)  # a pod has another name each time
            return report.created_at, tuple(each for each in found if each.matters)
    return "", ()


def _is_good(answer: Report | Decision) -> bool:
    good = (Verdict.READY, Verdict.READY_WITH_ENV)
    return answer.verdict in good and answer.node_verdict is not NodeVerdict.REJECT


def _trials(run: RunRecord, joint: JointPhase, disturbed: str) -> tuple[TrialResult, ...]:
    """Return the multi-node trials, or this node's own trials if no multi-node trial began.

    Each failed trial has the cause of its failure.
    """
    tried = run.launch.trials if joint.has_begun else run.launch.own_trials
    hosts = hosts_by_rank(joint.solo_results) if joint.has_begun else ()
    caused = (with_hosts(with_cause(trial), hosts) for trial in tried)
    return tuple(without_speeds(trial, disturbed) if disturbed else trial for trial in caused)


def _control(run: RunRecord, joint: JointPhase) -> Control:
    return run.launch.control if joint.has_begun else run.launch.own_control


def _case(run: RunRecord, joint: JointPhase, trials: tuple[TrialResult, ...], seen: LookedAgain) -> Case:
    request, path, launched = run.request, run.path, run.launch
    case = Case(
        (run.node,), trials, path.backend, path.world_size, path.wants_gpus, run.chosen,
        links=load_links(), policy=run.policy, rails=_rails(run, trials, seen.disturbed), storage=run.storage,
        hardware=seen.hardware, diagnosis=launched.diagnoses, outside=seen.outside, before=seen.before,
        baseline=run.baseline, fabric=run.fabric, baseline_source=request.baseline or "",
        control=_control(run, joint), bugs=load_known_bugs(),
        skip=dict.fromkeys(request.skipped, SKIPPED),
    )  # fmt: skip
    if not joint.has_begun:
        return case
    solos = joint.solo_results.values()
    return replace(
        case, diagnosis=(), nodes=tuple(solo.facts for solo in solos),
        gpus_by_node=tuple(solo.gpus for solo in solos), world_size=sum(solo.ranks for solo in solos),
        between=joint.network, isolation=launched.isolation,
    )  # fmt: skip


def _checked(run: RunRecord, joint: JointPhase, case: Case) -> CheckResults:
    if joint.has_begun:
        checked = joint_findings(joint.solo_results, case)
    elif len(joint.solo_results) > 1:
        checked = separate_findings(joint.solo_results)
    else:
        checked = run_checks(all_checks(), case)
    findings, policy = weighed(checked.findings, run.past), run.policy
    return checked._replace(findings=findings if policy is None else apply_policy(findings, policy))


def joint_findings(solo_results: Mapping[int, SoloResult], case: Case) -> CheckResults:
    """Return the results of all checks of all nodes, and the problems that each node's own test runs showed.

    `case` describes all nodes, and `solo_results` has the results of each node, by node rank.
    """
    left_out = [(solo.host, e) for solo in solo_results.values() for e in solo.skipped_checks if e.reason in BY_ORDER]
    checked = run_checks(all_checks(), replace(case, skip={e.check: f"{host}: {e.reason}" for host, e in left_out}))
    of_runs = {check.name for check in all_checks() if isinstance(check, RunCheck)}
    return checked._replace(findings=(*checked.findings, *(f for f in _by_host(solo_results) if f.check in of_runs)))


def separate_findings(solo_results: Mapping[int, SoloResult]) -> CheckResults:
    """Return the results of the checks in `solo_results`, for a run that did not test the nodes together."""
    skipped = (
        replace(each, reason=f"{solo.host}: {each.reason}")
        for solo in solo_results.values()
        for each in solo.skipped_checks
    )
    ran = of_several_nodes([(solo.host, solo.checks) for solo in solo_results.values()])
    return CheckResults(tuple(_by_host(solo_results)), tuple(skipped), ran)


def _by_host(solo_results: Mapping[int, SoloResult]) -> Iterator[Finding]:
    for solo in solo_results.values():
        for finding in solo.findings:
            is_named = solo.host in finding.subject
            yield finding if is_named else replace(finding, subject=f"{solo.host}, {finding.subject}")


def _rails(run: RunRecord, trials: Sequence[TrialResult], disturbed: str) -> tuple[RailTest, ...] | Gap | None:
    """Return the results of the RDMA tests, which test each port separately.

    Return None if the tests were not due. Return a Gap object with the reason if the tests were due but were not run.
    """
    default = default_trial(trials)
    if not rails_to_try(run.node, run.request.profile, run.path.dialect) or default is None or not works(default):
        return None
    if not run.launch.rails:
        why = "" if GpuTests.RAILS in run.request.wanted_tests else LEFT_OUT
        return Gap(why or run.launch.problem or run.launch.solo_problem or "the run ended before they were tried")
    rails = run.launch.rails
    return tuple(replace(rail, busbw_gb_s=Gap(disturbed)) for rail in rails) if disturbed else rails


def _advice(
    run: RunRecord, joint: JointPhase, case: Case, comparisons: Sequence[Comparison], today: str,
    installed: Mapping[str, str],
) -> Advice:  # fmt: skip
    inherited = tuple(EnvVar(name, value) for name, value in run.inherited)
    context = MachineContext(
        run.plan.settings, inherited_settings(run.inherited, run.path.dialect), run.node, run.chosen,
        None if run.path.on_cpu else load_links(), today,  # what the CPU reaches is no share of what GPUs should
    )  # fmt: skip
    cpu_path = not run.path.wants_gpus
    control = _control(run, joint)
    advice = recommend(case.trials, comparisons, inherited, cpu_path=cpu_path, context=context, control=control)
    if joint.has_begun:
        advice = advice_of_nodes(advice, case.trials, joint.solo_results, joint.network)
    return _with_timeouts(run, case.trials, _with_gpus(run, advice), case.world_size, installed)


def _with_gpus(run: RunRecord, advice: Advice) -> Advice:
    listed = run.node.gpus if isinstance(run.node.gpus, tuple) else ()
    visible, is_any_closed = run.environ.get(VISIBLE), bool(closed_gpus(run.node))
    pinned = gpu_env(run.request.gpus is not None, visible, run.path.gpus, listed, is_any_closed)
    uuids = tuple(known(gpu.uuid) for gpu in run.path.gpus) if pinned else ()
    return replace(advice, gpus=uuids, gpu_env=pinned)


def _with_timeouts(
    run: RunRecord, trials: tuple[TrialResult, ...], advice: Advice, world_size: int, installed: Mapping[str, str]
) -> Advice:
    """Return the advice with timeouts that are computed from these trials, but without the job's size.

    Only `preflight timeout` knows the job's size.
    """
    if not any(trial.outcome is Outcome.OK for trial in trials):
        return advice
    measured = timings(trials, world_size, run.storage, nccl_settings(run.node))
    torch = known(run.node.software).torch
    versions = {} if isinstance(torch, Gap) else {"torch": torch.version}
    versions |= installed
    safe = safe_timeout(Job(world_size=world_size), measured, versions=versions)
    return with_timeouts(advice, safe, versions, run.path.dialect)


def unjudged(run: RunRecord, why: str, judged: str | None) -> Report:
    """Return the report of `run` without a judgment.

    `why` is the reason in the headline. `judged` says why judging failed. `judged` is None if judging did not start.
    """
    launched = run.launch
    progress = RunProgress(
        True, launched.started_at > 0, launched.ready_after_s > 0, launched.done, launched.problem or why,
        launched.trials, launched.duels, run.without_room, judged,
    )  # fmt: skip
    blank = _unknown(run.request, run.path.backend, launched.interrupted, why)
    return replace(
        blank,
        simulated=blank.simulated or launched.simulated,
        world_size=run.path.world_size,
        nodes=(run.node,),
        trials=launched.trials,
        left_out=run.plan.left_out,
        problems=tuple(dict.fromkeys(filter(None, (launched.problem, why)))),
        durations_s=_durations(run),
        phases=phases_of(progress),
        checks=not_run(all_checks(), why),
    )


def _durations(run: RunRecord, *last: tuple[str, float]) -> tuple[tuple[str, float], ...]:
    return (*run.durations_s, *last, ("total", time.monotonic() - run.started_at))


def without_file(finding: Finding, advice: Advice) -> Finding:
    """Return `finding` with the settings of `advice` instead of the instruction to source the settings file.

    The settings file exists only after exit code 0.
    """
    exports = [f"export {name}={shlex.quote(value)}" for name, value in advice.env]
    settings = "; ".join([*exports, *(f"unset {name}" for name in advice.unset)])
    if not settings:
        return finding
    fix, workaround = (text.replace(SOURCE_ENV, f"`{settings}`") for text in (finding.fix, finding.workaround))
    return replace(finding, fix=fix, workaround=workaround)


def unprobed(request: Request, error: Exception | Interrupted) -> Report:
    """Return the report of a run that ended before the node was probed, because of a signal or an error."""
    match error:
        case Interrupted():
            why = f"{error} while the node was probed"
        case PreflightError():
            why = str(error)
        case OSError() | MemoryError():
            what = str(error) or type(error).__name__  # a MemoryError has no text
            why = traced(f"the node could not be probed: {what}", (), own_limits())
        case _:
            why = f"a defect in preflight: {type(error).__name__}: {error}"
    phases = phases_of(RunProgress(False, False, False, False, why))
    interrupted = error if isinstance(error, Interrupted) else None
    return replace(
        _unknown(request, request.backend or "none", interrupted, why), phases=phases, checks=not_run(all_checks(), why)
    )


def _unknown(request: Request, backend: str, interrupted: Interrupted | None, why: str) -> Report:
    code = interrupted.exit_code if interrupted else None
    report = unanswered(
        why, code, version=__version__, created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        backend=backend, profile=request.profile.value, accept=request.accept,
    )  # fmt: skip
    return replace(report, simulated=request.is_other_machine, shadow=request.shadow, narrowed=request.narrowed)
