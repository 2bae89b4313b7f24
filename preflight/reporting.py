"""From what a run gathered to its report: findings, advice, verdict; and the report of a run that was cut short."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from preflight import __version__
from preflight.errors import Interrupted
from preflight.explain.trial import with_cause
from preflight.judge.check import Case, all_checks, ran_checks, run_checks
from preflight.judge.gpu_busy import why_disturbed
from preflight.judge.run.beside_baseline import beside_baseline, is_beside_baseline
from preflight.judge.run.judged_by import judged_by
from preflight.judge.run.phases import Progress, phases_of
from preflight.judge.run.policy import apply_policy
from preflight.judge.run.unanswered import unanswered
from preflight.judge.run.verdict import decide
from preflight.judge.workaround import default_trial, works
from preflight.launch.hardware import hardware_of
from preflight.model.advice import Advice
from preflight.model.between import Between
from preflight.model.facts import EnvVar, Gap, known
from preflight.model.gpu_test import Hardware
from preflight.model.job import Job
from preflight.model.rail import RailTest
from preflight.model.report import Report
from preflight.model.storage import NO_DIRECTORY
from preflight.model.together import Alone
from preflight.model.trial import Outcome, TrialResult, without_speeds
from preflight.nodes import common_findings, separate_findings
from preflight.plan.environment import inherited_settings, matters
from preflight.plan.expected import NO_GPU_TRIED, expected_of_trials
from preflight.plan.gpu_set import closed_gpus
from preflight.plan.rails import rails_to_try
from preflight.plan.together import advice_of_nodes, hosts_by_rank, with_hosts
from preflight.recommend.background import Background
from preflight.recommend.compare import compare
from preflight.recommend.env import recommend
from preflight.recommend.gpu_env import VISIBLE, gpu_env
from preflight.recommend.timeout import safe_timeout
from preflight.recommend.timeout_env import with_timeouts
from preflight.recommend.timings import nccl_settings, timings
from preflight.run_state import Request, Run
from preflight.system.installed import installed_versions
from preflight.system.links import load_links

KILLED = "preflight was killed, or the machine went down, before it could answer"
REPORT_S = 0.4  # for judging and writing


def judged_or_not(
    run: Run,
    tried: tuple[TrialResult, ...],
    alones: Mapping[int, Alone],
    together: bool,
    between: Between | None = None,
) -> Report:
    """Return the report; where judging fails or is interrupted, one with everything but a judgement.

    Several nodes: `alones` is what each found by itself, and the trials are all nodes' where they ran them `together`.
    """
    try:
        return _judged(run, tried, alones, between, together=together)
    except Interrupted as error:
        run.interrupted = error
        why = f"{error} while judging"
    except Exception as error:  # noqa: BLE001  what was tried is not lost with it
        why = " ".join(f"a defect in preflight: {type(error).__name__}: {error}".split())
    return unjudged(run, why, why)


def alone_of(run: Run, free_bytes_per_rank: int) -> Alone:
    """Return what this node found by itself, for the others."""
    path, launched = run.path, run.launched
    report = _judged(run, tuple(launched.alone), {}, None, together=False)
    return Alone(
        host=run.node.host, ranks=path.world_size, backend=path.backend, dialect=path.dialect,
        is_cpu_path=not path.wants_gpus, problem=launched.alone_problem, trials=report.trials,
        findings=report.findings, skipped_checks=report.skipped_checks, env=report.advice.env,
        inherits_tuning=any(matters(name, path.dialect) for name, _ in run.inherited), netif="",
        free_bytes_per_rank=free_bytes_per_rank, gpus=run.chosen, facts=run.node,
    )  # fmt: skip


def _judged(
    run: Run, tried: tuple[TrialResult, ...], alones: Mapping[int, Alone], between: Between | None, *, together: bool
) -> Report:
    since = time.monotonic()
    request, path, launched = run.request, run.path, run.launched
    disturbed = why_disturbed(path.gpus)
    hosts = hosts_by_rank(alones) if together else ()
    caused = (with_hosts(with_cause(trial), hosts) for trial in tried)
    trials = tuple(without_speeds(trial, disturbed) if disturbed else trial for trial in caused)
    hardware = _hardware(run, disturbed)
    case = Case(
        (run.node,), trials, path.backend, path.world_size, path.wants_gpus, run.chosen,
        links=load_links(), policy=request.policy, hardware=hardware, rails=_rails(run, trials, disturbed),
        storage=run.storage, baseline=request.baseline, baseline_source=request.baseline_source,
    )  # fmt: skip
    checks = all_checks()
    if together:
        facts, gpus = tuple(each.facts for each in alones.values()), tuple(each.gpus for each in alones.values())
        case = replace(
            case, nodes=facts, world_size=len(hosts), gpus_by_node=gpus, between=between, isolation=launched.isolation
        )
        findings, skipped = common_findings(alones, case)
    elif len(alones) > 1:
        findings, skipped = separate_findings(alones)
    else:
        findings, skipped = run_checks(checks, case)
    if request.policy is not None:
        findings = apply_policy(findings, request.policy)
    comparisons = () if disturbed else tuple(compare(duel) for duel in launched.duels)
    unjudged_report = unjudged(run, launched.problem, "")
    inherited = tuple(EnvVar(name, value) for name, value in run.inherited)
    background = _background(run, unjudged_report.created_at.partition("T")[0])
    advice = recommend(trials, comparisons, inherited, cpu_path=not path.wants_gpus, background=background)
    advice = advice_of_nodes(advice, trials, alones, between) if together else advice
    advice = _with_timeouts(run, trials, _with_gpus(run, advice), case.world_size)
    problems = tuple(dict.fromkeys(problem for problem in (launched.problem, launched.alone_problem) if problem))
    decision = decide(
        case, findings, skipped, trials, advice, problems,
        strict=request.strict, accept=request.accept, cpu_path=not path.wants_gpus,
    )  # fmt: skip
    run.durations_s["judging"] = time.monotonic() - since
    return replace(
        unjudged_report,
        verdict=decision.verdict,
        node_verdict=decision.node_verdict,
        exit_code=run.interrupted.exit_code if run.interrupted else decision.exit_code,
        headline=decision.headline,
        world_size=case.world_size,
        nodes=tuple(alone.facts for alone in alones.values()) or (run.node,),
        trials=trials,
        comparisons=comparisons,
        left_out=run.plan.left_out_of(trials),
        findings=findings,
        skipped_checks=skipped,
        problems=problems,
        advice=advice,
        durations_s=_durations(run),
        checks=ran_checks(checks),
        between=between or unjudged_report.between,
        expected=expected_of_trials(load_links(), run.node, run.chosen, trials) if run.chosen else NO_GPU_TRIED,
        p2p=hardware if isinstance(hardware, Gap) else hardware.pairs,
        gpu_tests=hardware if isinstance(hardware, Gap) else hardware.gpus,
        counters=hardware if isinstance(hardware, Gap) else hardware.counters,
        judged_by=judged_by(case),
        beside_baseline=beside_baseline(case) if is_beside_baseline(case) else (),
        isolation=launched.isolation,
        rails=tuple(launched.rails),
        storage=run.storage or NO_DIRECTORY,
    )


def _rails(run: Run, trials: Sequence[TrialResult], disturbed: str) -> tuple[RailTest, ...] | Gap | None:
    """Return what the RDMA ports carried by themselves; None where they were not to be tried."""
    default = default_trial(trials)
    if not rails_to_try(run.node, run.request.profile, run.path.dialect) or default is None or not works(default):
        return None
    if not run.launched.rails:
        return Gap(run.launched.problem or run.launched.alone_problem or "the run ended before they were tried")
    if disturbed:
        return tuple(replace(rail, busbw_gb_s=Gap(disturbed)) for rail in run.launched.rails)
    return tuple(run.launched.rails)


def _hardware(run: Run, disturbed: str) -> Hardware | Gap:
    """Return what the GPUs of this node showed; the counters are read again once."""
    if run.hardware is None:
        left_s = 0.0 if run.interrupted else run.ends_at() - time.monotonic() - REPORT_S
        run.hardware = hardware_of(run.launched, run.node, run.path, run.watching, disturbed, left_s)
    return run.hardware


def _with_gpus(run: Run, advice: Advice) -> Advice:
    listed = run.node.gpus if isinstance(run.node.gpus, tuple) else ()
    pinned = gpu_env(
        run.request.gpus is not None, run.environ.get(VISIBLE), run.path.gpus, listed, bool(closed_gpus(run.node))
    )
    uuids = tuple(known(gpu.uuid) for gpu in run.path.gpus) if pinned else ()
    return replace(advice, gpus=uuids, gpu_env=pinned)


def _background(run: Run, today: str) -> Background:
    inherited = inherited_settings(run.inherited, run.path.dialect)
    links = None if run.path.on_cpu else load_links()  # what the CPU reaches is no share of what GPUs should
    return Background(run.plan.settings, inherited, run.node, run.chosen, links, today)


def _with_timeouts(run: Run, trials: tuple[TrialResult, ...], advice: Advice, world_size: int) -> Advice:
    """Return the advice with the timeouts that follow from these trials alone; `preflight timeout` knows the job."""
    if not any(trial.outcome is Outcome.OK for trial in trials):
        return advice
    measured = timings(trials, world_size, run.storage, nccl_settings(run.node))
    torch = known(run.node.software).torch
    versions = {} if isinstance(torch, Gap) else {"torch": torch.version}
    versions |= installed_versions(("deepspeed",))
    safe = safe_timeout(Job(world_size=world_size), measured, versions=versions)
    return with_timeouts(advice, safe, versions, run.path.dialect)


def unjudged(run: Run, why: str, judged: str | None) -> Report:
    """Return what is known without a judgement; `judged` says why there is none, None where it was not reached."""
    launched = run.launched
    progress = Progress(
        True, run.was_launched, launched.ready_after_s > 0, launched.done, launched.problem or why,
        tuple(launched.trials), tuple(launched.duels), judged,
    )  # fmt: skip
    blank = _unknown(run.request, run.path.backend, run.interrupted, why)
    return replace(
        blank,
        simulated=blank.simulated or launched.simulated,
        world_size=run.path.world_size,
        nodes=(run.node,),
        trials=tuple(launched.trials),
        left_out=run.plan.left_out,
        problems=tuple(dict.fromkeys(filter(None, (launched.problem, why)))),
        durations_s=_durations(run),
        phases=phases_of(progress),
    )


def _durations(run: Run) -> tuple[tuple[str, float], ...]:
    return (*run.durations_s.items(), ("total", time.monotonic() - run.started_at))


def unprobed(request: Request, error: Interrupted) -> Report:
    why = f"{error} while the node was probed"
    phases = phases_of(Progress(False, False, False, False, why))
    return replace(_unknown(request, request.backend or "none", error, why), phases=phases)


def _unknown(request: Request, backend: str, interrupted: Interrupted | None, why: str) -> Report:
    code = interrupted.exit_code if interrupted else None
    report = unanswered(
        why, code, version=__version__, created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        backend=backend, profile=request.profile.value, accept=request.accept,
    )  # fmt: skip
    return replace(report, simulated=request.is_other_machine)
