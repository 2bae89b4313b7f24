"""The one place that wires the phases: probe, plan, launch, judge, recommend, decide. Also the public Python API."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial

from preflight import __version__
from preflight.errors import Interrupted, MeetingError, PreflightError
from preflight.explain.trial import with_cause
from preflight.judge.check import Case, all_checks, run_checks
from preflight.judge.gpu_busy import why_disturbed
from preflight.judge.verdict import decide
from preflight.launch.guest import Guest
from preflight.launch.host import Host
from preflight.launch.launcher import Launched, Watcher, launch
from preflight.launch.placement import Asked, find_placement
from preflight.launch.run_dir import make_run_dir, remove_run_dir
from preflight.launch.together import prepare
from preflight.model.advice import Advice
from preflight.model.collective import Collective
from preflight.model.facts import EnvVar, Gap, NodeFacts, SystemFacts, known
from preflight.model.placement import Placement
from preflight.model.report import SCHEMA_VERSION, Report
from preflight.model.run import Profile, RunSpec
from preflight.model.together import Alone
from preflight.model.trial import Candidate, LeftOut, TrialResult, without_speeds
from preflight.nodes import common_findings, conclude, launch_with, open_meeting, separate_findings, times_of
from preflight.plan import profiles
from preflight.plan.candidates import DEFAULT_CANDIDATE, gloo_candidates, nccl_candidates
from preflight.plan.duel import DUEL_TURNS, decision_sizes
from preflight.plan.environment import inherited_tuning, matters
from preflight.plan.gpu_set import closed_gpus
from preflight.plan.path import Path, choose_path
from preflight.plan.together import Effort, advice_of_nodes, hosts_by_rank, with_hosts
from preflight.probe.run import probe_node
from preflight.recommend.compare import compare
from preflight.recommend.env import recommend
from preflight.recommend.gpu_env import VISIBLE, gpu_env
from preflight.system.machine import Machine

# Before the deadline: the conductor ends its step, then the launcher everything, then the report is written.
CONDUCTOR_MARGIN_S = 1.5
LAUNCHER_MARGIN_S = 0.6
CPU_MEMORY_SHARE = 0.25  # of what is free, for all ranks together
GPU_MEMORY_SHARE = 0.8
GIB = 1 << 30
ONE_NODE = Asked(nnodes=1)


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
    asked: Asked = ONE_NODE  # where this node stands; Asked() looks at the environment


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
    place: Placement
    node: NodeFacts
    path: Path
    inherited: tuple[tuple[str, str], ...]
    others: Host | Guest | None = None
    launched: Launched = field(default_factory=Launched)
    run_dir: str = ""
    interrupted: Interrupted | None = None
    durations_s: dict[str, float] = field(default_factory=dict)

    def ends_at(self) -> float:
        """Return the monotonic time of the deadline."""
        return self.started_at + (self.request.deadline_s or profiles.DEADLINE_S[self.request.profile])


def check(
    request: Request, machine: Machine, process: Machine, environ: Mapping[str, str], watch: Watcher, started_at: float
) -> Checked:
    """Probe, try, judge and recommend; `started_at` (monotonic) is when the deadline's clock began.

    `process` is the machine whose Python, environment and limits the ranks will have: the live one. Raises UsageError
    before anything is started; whatever goes wrong later is in the report.
    """
    place = find_placement(request.asked, environ)
    probing_since = time.monotonic()
    node, _ = probe_node(machine, process)
    path = choose_path(request.backend, request.gpus, request.nproc, environ.get("CUDA_VISIBLE_DEVICES"), node)
    run = _Run(request, environ, started_at, place, node, path, inherited_tuning(environ))
    run.durations_s["probe"] = time.monotonic() - probing_since
    candidates, left_out = _candidates(run)
    run.launched.problem = _torch_problem(node) or path.blocked
    if not run.launched.problem or place.nodes > 1:
        _launch(run, candidates, watch)
    told = str(run.interrupted or "")
    report = conclude(place, run.others, run.launched, told, partial(_report, run, left_out))
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
    try:
        run.run_dir = make_run_dir()
        spec = _spec(run, candidates)
        kill_at = run.ends_at() - LAUNCHER_MARGIN_S
        if run.place.nodes == 1:
            launch(spec, run.environ, run.launched, watch, kill_at)
        else:
            _launch_with_others(run, spec, watch, kill_at)
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


def _launch_with_others(run: _Run, spec: RunSpec, watch: Watcher, kill_at: float) -> None:
    """Have this node's ranks try what they can alone, and then with the other nodes'."""
    request = run.request
    effort = Effort(request.profile, request.collectives, request.stage_limit_s, request.default_only)
    prepare(run.run_dir)
    times = times_of(time.monotonic(), run.ends_at())
    spec = replace(spec, goes_on=True, screen_all=False, deadline_monotonic_s=times.alone_by)
    try:
        run.others = open_meeting(run.place, times, spec, run.node, lambda _: _alone(run), effort)
    except MeetingError as error:
        spec = replace(spec, goes_on=False)
        run.launched.alone_problem = f"the nodes could not meet: {error}"
    launch_with(run.others, spec, run.environ, run.launched, watch, kill_at)


def _alone(run: _Run) -> Alone:
    """Return what this node found by itself."""
    path, launched = run.path, run.launched
    report = _report(run, (), tuple(launched.alone), {}, together=False)
    return Alone(
        host=run.node.host, ranks=path.world_size, backend=path.backend, dialect=path.dialect,
        is_cpu_path=not path.wants_gpus, problem=launched.alone_problem, trials=report.trials,
        findings=report.findings, skipped_checks=report.skipped_checks, env=report.advice.env,
        inherits_tuning=any(matters(name, path.dialect) for name, _ in run.inherited), netif="",
        free_bytes_per_rank=_free_bytes_per_rank(run), gpus=tuple(gpu.nvml_index for gpu in path.gpus), facts=run.node,
    )  # fmt: skip


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
    return int(free_bytes * CPU_MEMORY_SHARE / max(1, run.path.world_size))


def _with_gpus(run: _Run, advice: Advice) -> Advice:
    listed = run.node.gpus if isinstance(run.node.gpus, tuple) else ()
    pinned = gpu_env(
        run.request.gpus is not None, run.environ.get(VISIBLE), run.path.gpus, listed, bool(closed_gpus(run.node))
    )
    uuids = tuple(known(gpu.uuid) for gpu in run.path.gpus) if pinned else ()
    return replace(advice, gpus=uuids, gpu_env=pinned)


def _report(
    run: _Run,
    left_out: tuple[LeftOut, ...],
    tried: tuple[TrialResult, ...],
    alones: Mapping[int, Alone],
    together: bool,
) -> Report:
    since = time.monotonic()
    request, path, launched = run.request, run.path, run.launched
    disturbed = why_disturbed(path.gpus)
    hosts = hosts_by_rank(alones) if together else ()
    caused = (with_hosts(with_cause(trial), hosts) for trial in tried)
    trials = tuple(without_speeds(trial, disturbed) if disturbed else trial for trial in caused)
    chosen = tuple(gpu.nvml_index for gpu in path.gpus)
    case = Case((run.node,), trials, path.backend, path.world_size, path.wants_gpus, chosen)
    if together:
        facts, gpus = tuple(each.facts for each in alones.values()), tuple(each.gpus for each in alones.values())
        case = replace(case, nodes=facts, world_size=len(hosts), gpus_by_node=gpus)
        findings, skipped = common_findings(alones, case)
    elif len(alones) > 1:
        findings, skipped = separate_findings(alones)
    else:
        findings, skipped = run_checks(all_checks(), case)
    comparisons = () if disturbed else tuple(compare(duel) for duel in launched.duels)
    inherited = tuple(EnvVar(name, value) for name, value in run.inherited)
    advice = _with_gpus(run, recommend(trials, comparisons, inherited, cpu_path=not path.wants_gpus))
    advice = advice_of_nodes(advice, trials, alones) if together else advice
    problems = tuple(dict.fromkeys(problem for problem in (launched.problem, launched.alone_problem) if problem))
    decision = decide(
        case, findings, skipped, trials, advice, problems,
        strict=request.strict, accept=request.accept, cpu_path=not path.wants_gpus,
    )  # fmt: skip
    run.durations_s["judging"] = time.monotonic() - since
    run.durations_s["total"] = time.monotonic() - run.started_at
    return Report(
        schema_version=SCHEMA_VERSION,
        preflight_version=__version__,
        created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        verdict=decision.verdict,
        node_verdict=decision.node_verdict,
        exit_code=run.interrupted.exit_code if run.interrupted else decision.exit_code,
        headline=decision.headline,
        simulated=launched.simulated or request.is_other_machine,
        backend=path.backend,
        profile=request.profile.value,
        world_size=case.world_size,
        nodes=tuple(alone.facts for alone in alones.values()) or (run.node,),
        trials=trials,
        comparisons=comparisons,
        left_out=left_out,
        findings=findings,
        skipped_checks=skipped,
        problems=problems,
        advice=advice,
        durations_s=tuple(run.durations_s.items()),
    )
