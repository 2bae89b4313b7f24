"""The one place that wires the phases: probe, plan, launch, judge, recommend, decide. Also the public Python API."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from preflight.errors import Interrupted, MeetingError, OutputError, PreflightError, UsageError
from preflight.launch.hardware import Watching, start_watching
from preflight.launch.launcher import Watcher, launch
from preflight.launch.placement import find_placement
from preflight.launch.run_dir import machine_path, make_run_dir, remove_run_dir, write_machine
from preflight.launch.together import prepare
from preflight.model.baseline import NO_BASELINE, Baseline, difference, hardware_of
from preflight.model.facts import Gap, NodeFacts, SystemFacts, known
from preflight.model.profile import Profile
from preflight.model.report import Report
from preflight.model.run import RunSpec
from preflight.nodes import conclude, launch_with, open_meeting, times_of
from preflight.plan import profiles
from preflight.plan.candidates import DEFAULT_CANDIDATE, gloo_candidates
from preflight.plan.duel import DUEL_TURNS, decision_sizes
from preflight.plan.environment import inherited_tuning
from preflight.plan.gpu_tests import device_plan
from preflight.plan.nccl import NcclPlan, plan_nccl
from preflight.plan.path import choose_path
from preflight.plan.rails import rails_to_try
from preflight.plan.together import Effort
from preflight.probe.environment import reported_environment
from preflight.probe.run import probe_node
from preflight.probe.storage import BUDGET_S, NODE_WRITERS, measure_storage
from preflight.reporting import KILLED, alone_of, judged_or_not, unjudged, unprobed
from preflight.run_state import Request, Run
from preflight.system.machine import Machine

__all__ = ["Checked", "Request", "check"]

# Before the deadline: the conductor ends its step, then the launcher everything, then the report is written.
CONDUCTOR_MARGIN_S = 1.5
LAUNCHER_MARGIN_S = 0.6
CPU_MEMORY_SHARE = 0.25  # of what is free, for all ranks together
GPU_MEMORY_SHARE = 0.8
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check: its report, where the run's files were kept, and the signal that cut it short."""

    report: Report
    run_dir: str
    interrupted: Interrupted | None


def check(
    request: Request,
    machine: Machine,
    process: Machine,
    environ: Mapping[str, str],
    watch: Watcher,
    started_at: float,
    save: Callable[[Report], None] = lambda _: None,
    silent: Mapping[str, str] | None = None,
) -> Checked:
    """Probe, try, judge and recommend; `started_at` (monotonic) is when the deadline's clock began.

    `process` is the machine whose Python, environment and limits are judged: the live one, unless another machine is
    played. `silent` are the probes that a capture has no answer of. Before the ranks start, `save` is given the report
    that holds if this process is killed: an earlier run's must not be taken for this one's. Raises UsageError before
    anything is started; whatever goes wrong later is in the report.
    """
    place = find_placement(request.asked, environ)
    if request.baseline is not None and place.nodes > 1:
        raise UsageError("--baseline judges one node: run `preflight check` on each by itself (--nnodes 1)")
    probing_since = time.monotonic()
    try:
        node, _ = probe_node(machine, process, silent=silent)
    except Interrupted as error:
        return Checked(unprobed(request, error), "", error)
    if request.is_played:  # as if the job were started there with what is set here
        node = replace(node, environment=reported_environment(environ))
    path = choose_path(
        request.backend, request.gpus, request.nproc, environ.get("CUDA_VISIBLE_DEVICES"), node,
        is_elsewhere=request.is_played,
    )  # fmt: skip
    run = Run(request, environ, started_at, place, node, path, inherited_tuning(environ), Watching(machine))
    run.durations_s["probe"] = time.monotonic() - probing_since
    run.plan = _plan(run)
    run.launched.problem = _torch_problem(node) or path.blocked
    if request.checkpoint_dir and place.nodes == 1:
        _try_storage(run, request.checkpoint_dir)
    if not run.launched.problem or place.nodes > 1:
        with contextlib.suppress(OutputError):  # what can't be written now is said at the end, if it still can't
            save(unjudged(run, KILLED, None))
        _launch(run, watch)
    report = conclude(place, run.others, run.launched, str(run.interrupted or ""), partial(judged_or_not, run))
    if run.run_dir and not request.keep and report.exit_code == 0 and run.interrupted is None:
        remove_run_dir(run.run_dir)
        run.run_dir = ""
    return Checked(report, run.run_dir, run.interrupted)


def _try_storage(run: Run, directory: str) -> None:
    """Try the directory before there is anything to lose: UsageError where there is none."""
    since = time.monotonic()
    writers = max(1, min(run.path.world_size, NODE_WRITERS))
    try:
        run.storage = measure_storage(directory, writers, min(BUDGET_S, (run.ends_at() - since) / 4))
    except Interrupted as error:
        run.interrupted, run.launched.problem = error, f"{error} while {directory} was tried"
    run.durations_s["storage"] = time.monotonic() - since


def _torch_problem(node: NodeFacts) -> str:
    if isinstance(node.software, Gap):
        return f"what Python and torch are installed could not be read: {node.software.reason}"
    return f"torch can't be used: {node.software.torch.reason}" if isinstance(node.software.torch, Gap) else ""


def _plan(run: Run) -> NcclPlan:
    if run.request.default_only:
        return NcclPlan((DEFAULT_CANDIDATE,), (), ())
    if run.path.dialect == "nccl":
        return plan_nccl(run.node, run.chosen, run.inherited, for_speed=run.request.profile is not Profile.QUICK)
    netifs = run.node.netifs if isinstance(run.node.netifs, tuple) else ()
    candidates, left_out = gloo_candidates(netifs, run.inherited)
    return NcclPlan(candidates, (), left_out)


def _launch(run: Run, watch: Watcher) -> None:
    """Have the ranks try what was planned; a failed launch or a signal is noted, what came before it is kept."""
    since = run.launched.started_at = time.monotonic()
    run.was_launched = True
    try:
        run.run_dir = make_run_dir()
        if run.request.is_played:
            write_machine(run.run_dir, run.node, run.chosen)
        spec = _spec(run)
        run.watching = start_watching(run.watching.machine, run.path, run.request.is_other_machine)
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


def _launch_with_others(run: Run, spec: RunSpec, watch: Watcher, kill_at: float) -> None:
    """Have this node's ranks try what they can alone, and then with the other nodes'."""
    request = run.request
    effort = Effort(request.profile, request.collectives, request.stage_limit_s, request.default_only)
    prepare(run.run_dir)
    times = times_of(time.monotonic(), run.ends_at())
    spec = replace(spec, goes_on=True, screen_all=False, deadline_monotonic_s=times.alone_by)
    try:
        run.others = open_meeting(
            run.place,
            times,
            spec,
            run.node,
            lambda _: alone_of(run, _free_bytes_per_rank(run)),
            effort,
            request.checkpoint_dir or "",
        )
    except MeetingError as error:
        spec = replace(spec, goes_on=False)
        run.launched.alone_problem = f"the nodes could not meet: {error}"
    launch_with(run.others, spec, run.environ, run.launched, watch, kill_at)


def _spec(run: Run) -> RunSpec:
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
        candidates=run.plan.candidates,
        screen_all=request.profile is not Profile.QUICK,
        measures=profiles.measures(profiles.EFFORT[request.profile], sizes, request.collectives),
        duel_measures=profiles.measures(profiles.DUEL_EFFORT, deciding),
        cure_measures=profiles.measures(profiles.DUEL_EFFORT, profiles.cure_sizes(sizes), request.collectives),
        duel_turns=DUEL_TURNS,
        limits=profiles.stage_limits(path.backend, request.stage_limit_s),
        deadline_monotonic_s=run.ends_at() - CONDUCTOR_MARGIN_S,
        devices=device_plan(request.profile, gpus, run.node, request.burn_s),
        settings=run.plan.settings,
        machine_path=machine_path(run.run_dir) if request.is_played else "",
        baseline=_comparable_baseline(run),
        rails=rails_to_try(run.node, request.profile, path.dialect),
    )


def _comparable_baseline(run: Run) -> Baseline:
    """Return the baseline where it is of hardware like this: what can't be compared is not worth repeating."""
    asked, system = run.request.baseline, run.node.system
    if asked is None or isinstance(system, Gap):
        return NO_BASELINE
    here = hardware_of(run.path.backend, run.path.world_size, system.architecture, run.path.gpus)
    return NO_BASELINE if difference(here, asked.hardware) else asked


def _free_bytes_per_rank(run: Run) -> int:
    """Return what one rank may use: of the fullest GPU, or its share of the host's memory under the cgroup's limit."""
    if not run.path.on_cpu:
        free = [gpu.memory_free_bytes for gpu in run.path.gpus if isinstance(gpu.memory_free_bytes, int)]
        return int(min(free, default=GIB) * GPU_MEMORY_SHARE)
    system = run.node.system
    if run.request.is_played:  # what is free on that machine is not free here
        return GIB // max(1, run.path.world_size)
    limits = (
        (system.memory_available_bytes, system.cgroup_memory_limit_bytes) if isinstance(system, SystemFacts) else ()
    )
    free_bytes = min((value for value in limits if isinstance(value, int)), default=GIB)
    return int(free_bytes * CPU_MEMORY_SHARE / max(1, run.path.world_size))
