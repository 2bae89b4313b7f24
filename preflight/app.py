"""The one place that wires the phases: probe, plan, launch, judge, recommend, decide. Also the public Python API."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from preflight import __version__
from preflight.errors import Interrupted, PreflightError
from preflight.explain.trial import with_cause
from preflight.judge.check import Case, all_checks, run_checks
from preflight.judge.gpu_busy import why_disturbed
from preflight.judge.verdict import decide
from preflight.launch.launcher import Launched, Watcher, launch
from preflight.launch.run_dir import machine_path, make_run_dir, remove_run_dir, write_machine
from preflight.model.advice import Advice
from preflight.model.collective import Collective
from preflight.model.facts import EnvVar, Gap, NodeFacts, SystemFacts, known
from preflight.model.report import SCHEMA_VERSION, Report
from preflight.model.run import Profile, RunSpec
from preflight.model.trial import without_speeds
from preflight.plan import profiles
from preflight.plan.candidates import DEFAULT_CANDIDATE, gloo_candidates
from preflight.plan.duel import DUEL_TURNS, decision_sizes
from preflight.plan.environment import inherited_settings, inherited_tuning
from preflight.plan.gpu_set import closed_gpus
from preflight.plan.nccl import NcclPlan, plan_nccl
from preflight.plan.path import Path, choose_path
from preflight.probe.environment import reported_environment
from preflight.probe.run import probe_node
from preflight.recommend.background import Background
from preflight.recommend.compare import compare
from preflight.recommend.env import recommend
from preflight.recommend.gpu_env import VISIBLE, gpu_env
from preflight.system.links import load_links
from preflight.system.machine import Machine

# Before the deadline: the conductor ends its step, then the launcher everything, then the report is written.
CONDUCTOR_MARGIN_S = 1.5
LAUNCHER_MARGIN_S = 0.6
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
    is_played: bool = False  # and a stand-in backend plays that machine, a rank for each of its GPUs


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
    durations_s: dict[str, float] = field(default_factory=dict)

    def ends_at(self) -> float:
        """Return the monotonic time of the deadline."""
        return self.started_at + (self.request.deadline_s or profiles.DEADLINE_S[self.request.profile])


def check(
    request: Request, machine: Machine, process: Machine, environ: Mapping[str, str], watch: Watcher, started_at: float,
    silent: Mapping[str, str] | None = None,
) -> Checked:  # fmt: skip
    """Probe, try, judge and recommend; `started_at` (monotonic) is when the deadline's clock began.

    `process` is the machine whose Python, environment and limits are judged: the live one, unless another machine is
    played. `silent` are the probes that a capture has no answer of. Raises UsageError before anything is started;
    whatever goes wrong later is in the report.
    """
    probing_since = time.monotonic()
    node, _ = probe_node(machine, process, silent=silent)
    if request.is_played:  # as if the job were started there with what is set here
        node = replace(node, environment=reported_environment(environ))
    path = choose_path(
        request.backend, request.gpus, request.nproc, environ.get("CUDA_VISIBLE_DEVICES"), node,
        is_elsewhere=request.is_played,
    )  # fmt: skip
    run = _Run(request, environ, started_at, node, path, inherited_tuning(environ))
    run.durations_s["probe"] = time.monotonic() - probing_since
    plan = _plan(run)
    run.launched.problem = _torch_problem(node) or path.blocked
    if not run.launched.problem:
        _launch(run, plan, watch)
    report = _report(run, plan)
    if run.run_dir and not request.keep and report.exit_code == 0 and run.interrupted is None:
        remove_run_dir(run.run_dir)
        run.run_dir = ""
    return Checked(report, run.run_dir, run.interrupted)


def _torch_problem(node: NodeFacts) -> str:
    if isinstance(node.software, Gap):
        return f"what Python and torch are installed could not be read: {node.software.reason}"
    return f"torch can't be used: {node.software.torch.reason}" if isinstance(node.software.torch, Gap) else ""


def _plan(run: _Run) -> NcclPlan:
    if run.request.default_only:
        return NcclPlan((DEFAULT_CANDIDATE,), (), ())
    if run.path.dialect == "nccl":
        gpus = tuple(gpu.nvml_index for gpu in run.path.gpus)
        return plan_nccl(run.node, gpus, run.inherited, for_speed=run.request.profile is not Profile.QUICK)
    netifs = run.node.netifs if isinstance(run.node.netifs, tuple) else ()
    candidates, left_out = gloo_candidates(netifs, run.inherited)
    return NcclPlan(candidates, (), left_out)


def _launch(run: _Run, plan: NcclPlan, watch: Watcher) -> None:
    """Have the ranks try what was planned; a failed launch or a signal is noted, what came before it is kept."""
    since = time.monotonic()
    try:
        run.run_dir = make_run_dir()
        if run.request.is_played:
            write_machine(run.run_dir, run.node, tuple(gpu.nvml_index for gpu in run.path.gpus))
        spec = _spec(run, plan)
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


def _spec(run: _Run, plan: NcclPlan) -> RunSpec:
    request, path = run.request, run.path
    gpus = () if path.on_cpu else path.gpus
    sizes = profiles.sizes(request.profile, bool(gpus), _free_bytes_per_rank(run))
    deciding = decision_sizes(sizes, cpu_path=path.on_cpu)
    return RunSpec(
        run_dir=run.run_dir,
        world_size=path.world_size,
        backend=path.backend,
        backend_module=path.backend_module,
        dialect=path.dialect,
        gpu_uuids=tuple(known(gpu.uuid) for gpu in gpus),
        gpu_bdfs=tuple("" if isinstance(gpu.bdf, Gap) else gpu.bdf for gpu in gpus),
        inherited=run.inherited,
        candidates=plan.candidates,
        screen_all=request.profile is not Profile.QUICK,
        measures=profiles.measures(profiles.EFFORT[request.profile], sizes, request.collectives),
        duel_measures=profiles.measures(profiles.DUEL_EFFORT, deciding),
        duel_turns=DUEL_TURNS,
        limits=profiles.stage_limits(path.backend, request.stage_limit_s),
        deadline_monotonic_s=run.ends_at() - CONDUCTOR_MARGIN_S,
        settings=plan.settings,
        machine_path=machine_path(run.run_dir) if request.is_played else "",
    )


def _free_bytes_per_rank(run: _Run) -> int:
    """Return what one rank may use: of the fullest GPU, or its share of the host's memory under the cgroup's limit."""
    if not run.path.on_cpu:
        free = [gpu.memory_free_bytes for gpu in run.path.gpus if isinstance(gpu.memory_free_bytes, int)]
        return int(min(free, default=GIB) * GPU_MEMORY_SHARE)
    system = run.node.system
    if run.request.is_played:  # what is free on that machine is not free here
        return GIB // run.path.world_size
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


def _background(run: _Run, plan: NcclPlan, today: str) -> Background:
    inherited = inherited_settings(run.inherited, run.path.dialect)
    chosen = tuple(gpu.nvml_index for gpu in run.path.gpus)
    links = None if run.path.on_cpu else load_links()  # what the CPU reaches is no share of what GPUs should
    return Background(plan.settings, inherited, run.node, chosen, links, today)


def _report(run: _Run, plan: NcclPlan) -> Report:
    since = time.monotonic()
    request, path, launched = run.request, run.path, run.launched
    disturbed = why_disturbed(path.gpus)
    tried = (with_cause(trial) for trial in launched.trials)
    trials = tuple(without_speeds(trial, disturbed) if disturbed else trial for trial in tried)
    chosen = tuple(gpu.nvml_index for gpu in path.gpus)
    case = Case((run.node,), trials, path.backend, path.world_size, path.wants_gpus, chosen, load_links())
    findings, skipped = run_checks(all_checks(), case)
    comparisons = () if disturbed else tuple(compare(duel) for duel in launched.duels)
    inherited = tuple(EnvVar(name, value) for name, value in run.inherited)
    created_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    background = _background(run, plan, created_at.partition("T")[0])
    advice = recommend(trials, comparisons, inherited, cpu_path=not path.wants_gpus, background=background)
    advice = _with_gpus(run, advice)
    problems = (launched.problem,) if launched.problem else ()
    decision = decide(
        case, findings, skipped, trials, advice, problems,
        strict=request.strict, accept=request.accept, cpu_path=not path.wants_gpus,
    )  # fmt: skip
    run.durations_s["judging"] = time.monotonic() - since
    run.durations_s["total"] = time.monotonic() - run.started_at
    return Report(
        schema_version=SCHEMA_VERSION,
        preflight_version=__version__,
        created_at=created_at,
        verdict=decision.verdict,
        node_verdict=decision.node_verdict,
        exit_code=run.interrupted.exit_code if run.interrupted else decision.exit_code,
        headline=decision.headline,
        simulated=launched.simulated or request.is_other_machine,
        backend=path.backend,
        profile=request.profile.value,
        world_size=path.world_size,
        nodes=(run.node,),
        trials=trials,
        comparisons=comparisons,
        left_out=plan.left_out_of(trials),
        findings=findings,
        skipped_checks=skipped,
        problems=problems,
        advice=advice,
        durations_s=tuple(run.durations_s.items()),
    )
