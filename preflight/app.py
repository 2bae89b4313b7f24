"""The one place that wires the phases: probe, plan, launch, judge, recommend, decide. Also the public Python API."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from preflight import __version__
from preflight.errors import Interrupted, OutputError, PreflightError
from preflight.explain.trial import with_cause
from preflight.judge.check import Case, all_checks, ran_checks, run_checks
from preflight.judge.gpu_busy import why_disturbed
from preflight.judge.phases import Progress, phases_of
from preflight.judge.unanswered import unanswered
from preflight.judge.verdict import decide
from preflight.launch.launcher import Launched, Watcher, launch
from preflight.launch.run_dir import make_run_dir, remove_run_dir
from preflight.model.advice import Advice
from preflight.model.collective import Collective
from preflight.model.facts import EnvVar, Gap, NodeFacts, SystemFacts, known
from preflight.model.report import Report
from preflight.model.run import Profile, RunSpec
from preflight.model.trial import Candidate, LeftOut, without_speeds
from preflight.plan import profiles
from preflight.plan.candidates import DEFAULT_CANDIDATE, gloo_candidates, nccl_candidates
from preflight.plan.duel import DUEL_TURNS, decision_sizes
from preflight.plan.environment import inherited_tuning
from preflight.plan.expected import NO_GPU_TRIED, expected_of_trials
from preflight.plan.gpu_set import closed_gpus
from preflight.plan.path import Path, choose_path
from preflight.probe.run import probe_node
from preflight.recommend.compare import compare
from preflight.recommend.env import recommend
from preflight.recommend.gpu_env import VISIBLE, gpu_env
from preflight.system.links import load_links
from preflight.system.machine import Machine

# Before the deadline: the conductor ends its step, then the launcher everything, then the report is written.
CONDUCTOR_MARGIN_S = 1.5
LAUNCHER_MARGIN_S = 0.6
KILLED = "preflight was killed, or the machine went down, before it could answer"
CPU_MEMORY_SHARE = 0.25  # of what is free, for all ranks together
GPU_MEMORY_SHARE = 0.8
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Request:
    """What `preflight check` was asked to do; the options of the command line, parsed."""

    gpus: str | None = None
    nproc: int | None = None
    backend: str | None = None
    profile: Profile = Profile.QUICK
    collectives: tuple[Collective, ...] = profiles.COLLECTIVES
    default_only: bool = False  # `bench`: measure what the job gets, try nothing else
    deadline_s: float | None = None
    stage_limit_s: float | None = None
    strict: bool = False
    accept: bool = False
    keep: bool = False
    is_other_machine: bool = False  # the facts are another machine's: the result is simulated


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check: its report, where the run's files were kept, and the signal that cut it short."""

    report: Report
    run_dir: str
    interrupted: Interrupted | None


@dataclass(slots=True)
class _Run:
    """What a check gathers on its way."""

    request: Request
    environ: Mapping[str, str]
    started_at: float  # monotonic
    node: NodeFacts
    path: Path
    inherited: tuple[tuple[str, str], ...]
    launched: Launched = field(default_factory=Launched)
    run_dir: str = ""
    interrupted: Interrupted | None = None
    was_launched: bool = False
    durations_s: dict[str, float] = field(default_factory=dict)

    def ends_at(self) -> float:
        """Return the monotonic time of the deadline."""
        return self.started_at + (self.request.deadline_s or profiles.DEADLINE_S[self.request.profile])


def check(
    request: Request,
    machine: Machine,
    process: Machine,
    environ: Mapping[str, str],
    watch: Watcher,
    started_at: float,
    save: Callable[[Report], None] = lambda _: None,
) -> Checked:
    """Probe, try, judge and recommend; `started_at` (monotonic) is when the deadline's clock began.

    `process` is the machine whose Python, environment and limits the ranks will have: the live one. Raises UsageError
    before anything is started; whatever goes wrong later is in the report. Before the ranks start, `save` is given the
    report that holds if this process is killed: an earlier run's must not be taken for this one's.
    """
    probing_since = time.monotonic()
    try:
        node, _ = probe_node(machine, process)
    except Interrupted as error:
        return Checked(_unprobed(request, error), "", error)
    path = choose_path(request.backend, request.gpus, request.nproc, environ.get("CUDA_VISIBLE_DEVICES"), node)
    run = _Run(request, environ, started_at, node, path, inherited_tuning(environ))
    run.durations_s["probe"] = time.monotonic() - probing_since
    candidates, left_out = _candidates(run)
    run.launched.problem = _torch_problem(node) or path.blocked
    if not run.launched.problem:
        with contextlib.suppress(OutputError):  # what can't be written now is said at the end, if it still can't
            save(_unjudged(run, left_out, KILLED, None))
        _launch(run, candidates, watch)
    report = _judged_or_not(run, left_out)
    if run.run_dir and not request.keep and report.exit_code == 0 and run.interrupted is None:
        remove_run_dir(run.run_dir)
        run.run_dir = ""
    return Checked(report, run.run_dir, run.interrupted)


def _torch_problem(node: NodeFacts) -> str:
    if isinstance(node.software, Gap):
        return f"what Python and torch are installed could not be read: {node.software.reason}"
    return f"torch can't be used: {node.software.torch.reason}" if isinstance(node.software.torch, Gap) else ""


def _candidates(run: _Run) -> tuple[tuple[Candidate, ...], tuple[LeftOut, ...]]:
    if run.request.default_only:
        return (DEFAULT_CANDIDATE,), ()
    if run.path.dialect == "nccl":
        return nccl_candidates(run.inherited)
    netifs = run.node.netifs if isinstance(run.node.netifs, tuple) else ()
    return gloo_candidates(netifs, run.inherited)


def _launch(run: _Run, candidates: tuple[Candidate, ...], watch: Watcher) -> None:
    """Have the ranks try the candidates; a failed launch or a signal is noted, what came before it is kept."""
    since = time.monotonic()
    run.was_launched = True
    try:
        run.run_dir = make_run_dir()
        spec = _spec(run, candidates)
        launch(spec, run.environ, run.launched, watch, kill_at=run.ends_at() - LAUNCHER_MARGIN_S)
    except Interrupted as error:
        run.interrupted = error
        run.launched.problem = f"{error} at {run.launched.running or 'the start of torchrun'}"
    except PreflightError as error:
        run.launched.problem = str(error)
    except OSError as error:
        run.launched.problem = f"the ranks could not be run: {error}"
    except Exception as error:  # noqa: BLE001  what the ranks reported until then is not lost with it
        run.launched.problem = f"a defect in preflight: {type(error).__name__}: {error}"
    run.durations_s["start of the ranks"] = run.launched.ready_after_s
    run.durations_s["trials"] = time.monotonic() - since - run.launched.ready_after_s


def _spec(run: _Run, candidates: tuple[Candidate, ...]) -> RunSpec:
    request, path = run.request, run.path
    sizes = profiles.sizes(request.profile, bool(path.gpus), _free_bytes_per_rank(run))
    deciding = decision_sizes(sizes, cpu_path=not path.gpus)
    return RunSpec(
        run_dir=run.run_dir,
        world_size=path.world_size,
        backend=path.backend,
        backend_module=path.backend_module,
        dialect=path.dialect,
        gpu_uuids=tuple(known(gpu.uuid) for gpu in path.gpus),
        gpu_bdfs=tuple("" if isinstance(gpu.bdf, Gap) else gpu.bdf for gpu in path.gpus),
        inherited=run.inherited,
        candidates=candidates,
        screen_all=request.profile is not Profile.QUICK,
        measures=profiles.measures(profiles.EFFORT[request.profile], sizes, request.collectives),
        duel_measures=profiles.measures(profiles.DUEL_EFFORT, deciding),
        duel_turns=DUEL_TURNS,
        limits=profiles.stage_limits(path.backend, request.stage_limit_s),
        deadline_monotonic_s=run.ends_at() - CONDUCTOR_MARGIN_S,
    )


def _free_bytes_per_rank(run: _Run) -> int:
    """Return what one rank may use: of the fullest GPU, or its share of the host's memory under the cgroup's limit."""
    if run.path.gpus:
        free = [gpu.memory_free_bytes for gpu in run.path.gpus if isinstance(gpu.memory_free_bytes, int)]
        return int(min(free, default=GIB) * GPU_MEMORY_SHARE)
    system = run.node.system
    limits = (
        (system.memory_available_bytes, system.cgroup_memory_limit_bytes) if isinstance(system, SystemFacts) else ()
    )
    free_bytes = min((value for value in limits if isinstance(value, int)), default=GIB)
    return int(free_bytes * CPU_MEMORY_SHARE / run.path.world_size)


def _with_gpus(run: _Run, advice: Advice) -> Advice:
    listed = run.node.gpus if isinstance(run.node.gpus, tuple) else ()
    pinned = gpu_env(
        run.request.gpus is not None, run.environ.get(VISIBLE), run.path.gpus, listed, bool(closed_gpus(run.node))
    )
    uuids = tuple(known(gpu.uuid) for gpu in run.path.gpus) if pinned else ()
    return replace(advice, gpus=uuids, gpu_env=pinned)


def _judged_or_not(run: _Run, left_out: tuple[LeftOut, ...]) -> Report:
    """Return the report; where judging fails or is interrupted, one with everything but a judgement."""
    try:
        return _report(run, left_out)
    except Interrupted as error:
        run.interrupted = error
        why = f"{error} while judging"
    except Exception as error:  # noqa: BLE001  what was tried is not lost with it
        why = " ".join(f"a defect in preflight: {type(error).__name__}: {error}".split())
    return _unjudged(run, left_out, why, why)


def _report(run: _Run, left_out: tuple[LeftOut, ...]) -> Report:
    since = time.monotonic()
    request, path, launched = run.request, run.path, run.launched
    disturbed = why_disturbed(path.gpus)
    tried = (with_cause(trial) for trial in launched.trials)
    trials = tuple(without_speeds(trial, disturbed) if disturbed else trial for trial in tried)
    chosen = tuple(gpu.nvml_index for gpu in path.gpus)
    case = Case((run.node,), trials, path.backend, path.world_size, path.wants_gpus, chosen)
    checks = all_checks()
    findings, skipped = run_checks(checks, case)
    comparisons = () if disturbed else tuple(compare(duel) for duel in launched.duels)
    inherited = tuple(EnvVar(name, value) for name, value in run.inherited)
    advice = _with_gpus(run, recommend(trials, comparisons, inherited, cpu_path=not path.wants_gpus))
    problems = (launched.problem,) if launched.problem else ()
    decision = decide(
        case, findings, skipped, trials, advice, problems,
        strict=request.strict, accept=request.accept, cpu_path=not path.wants_gpus,
    )  # fmt: skip
    run.durations_s["judging"] = time.monotonic() - since
    return replace(
        _unjudged(run, left_out, launched.problem, ""),
        verdict=decision.verdict,
        node_verdict=decision.node_verdict,
        exit_code=run.interrupted.exit_code if run.interrupted else decision.exit_code,
        headline=decision.headline,
        trials=trials,
        comparisons=comparisons,
        findings=findings,
        skipped_checks=skipped,
        problems=problems,
        advice=advice,
        checks=ran_checks(checks),
        expected=expected_of_trials(load_links(), run.node, chosen, trials) if chosen else NO_GPU_TRIED,
    )


def _unjudged(run: _Run, left_out: tuple[LeftOut, ...], why: str, judged: str | None) -> Report:
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
        left_out=left_out,
        problems=tuple(dict.fromkeys(filter(None, (launched.problem, why)))),
        durations_s=(*run.durations_s.items(), ("total", time.monotonic() - run.started_at)),
        phases=phases_of(progress),
    )


def _unprobed(request: Request, error: Interrupted) -> Report:
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
