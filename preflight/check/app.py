"""The one place that wires the phases: probe, plan, launch, judge, recommend, decide."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from preflight.check.inputs import read_baseline, read_history, read_policy
from preflight.check.meeting import open_meeting, times_of
from preflight.check.report_builder import KILLED, judged_or_not, solo_result_of, unjudged, unprobed
from preflight.check.request import Request
from preflight.check.run_record import RunRecord
from preflight.check.spec_builder import build_spec, free_bytes_per_rank, plan_trials, too_little_memory, without_room
from preflight.errors import Interrupted, MalformedInput, MeetingError, OutputError, UsageError
from preflight.facts.counters import probe_outside_events
from preflight.facts.process import reported_environment
from preflight.facts.run import probe_node
from preflight.facts.storage import BUDGET_S, NODE_WRITERS, measure_storage
from preflight.judge.outside_cause import traced
from preflight.model.codec import decode, encode
from preflight.model.counters import events_between
from preflight.model.facts import Gap, NodeFacts
from preflight.model.joint import NO_JOINT_PHASE
from preflight.model.report import PAUSED, Report
from preflight.model.run_spec import RunSpec
from preflight.model.trial import unregistered_backend
from preflight.search.backend_choice import choose_backend
from preflight.search.nodes.joint_plan import advice_here
from preflight.search.settings.environment import inherited_tuning, why_torch_would_end
from preflight.system.installed import module_exists
from preflight.system.kernel_queries import live_machine, own_limits
from preflight.system.machine import Machine
from preflight.trial.hardware_results import HardwareWatch, start_hardware_watch
from preflight.trial.launch_result import Launch, LaunchResult
from preflight.trial.launcher import Peers, Watcher, launch, meet_without_ranks
from preflight.trial.nodes.follower import Follower
from preflight.trial.nodes.leader import Leader
from preflight.trial.nodes.placement import Asked, find_placement
from preflight.trial.nodes.wire import pack
from preflight.trial.run_dir import machine_path, make_joint_dir, make_run_dir, remove_run_dir, write_machine

__all__ = ["Checked", "check", "unprobed"]

LAUNCHER_MARGIN_S = 0.6  # before the deadline: the launcher ends everything, then the report is written


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
    policy, baseline = read_policy(request.policy), read_baseline(request.baseline)
    place = find_placement(Asked(request.nnodes, request.node_rank, request.rdzv_endpoint, request.rdzv_id), environ)
    if request.baseline is not None and place.nodes > 1:
        raise UsageError("--baseline judges one node: run `preflight check` on each by itself (--nnodes 1)")
    probing_since = time.monotonic()
    try:
        node, _ = probe_node(machine, process, silent=silent)
    except Interrupted as error:
        return Checked(unprobed(request, error), "", error)
    except (OSError, MemoryError) as error:  # no process, no descriptor, no memory for it
        return Checked(unprobed(request, error), "", None)
    history = read_history(request.history, node, is_quiet=request.quiet)
    if request.is_played:  # as if the job were started there with what is set here
        node = replace(node, environment=reported_environment(environ))
    path = choose_backend(
        request.backend, request.gpus, request.nproc, environ.get("CUDA_VISIBLE_DEVICES"), node,
        is_elsewhere=request.is_played,
    )  # fmt: skip
    if path.backend_module and not module_exists(path.backend_module):
        raise UsageError(
            f"--backend {path.backend}@{path.backend_module}: there is no module {path.backend_module} (PYTHONPATH?)"
        )
    took_s = time.monotonic() - probing_since
    inherited = inherited_tuning(environ)
    run = RunRecord(
        request, environ, started_at, place, node, path, inherited, HardwareWatch(machine), policy, baseline, history
    )
    problem = _torch_problem(node) or why_torch_would_end(environ) or path.blocked or too_little_memory(run)
    run = replace(run, plan=plan_trials(run), launch=LaunchResult(problem=problem), durations_s=(("probe", took_s),))
    run = replace(run, without_room=without_room(run))
    if request.checkpoint_dir and place.nodes == 1:
        run = _try_storage(run, request.checkpoint_dir)
    peers = None
    if not run.launch.problem or place.nodes > 1:
        with contextlib.suppress(OutputError):  # what can't be written now is said at the end, if it still can't
            save(unjudged(run, KILLED, None))
        run, peers = _launch(run, watch)
        _refuse_unregistered(run, save)
    report, interrupted = _conclude(run, peers)
    if run.run_dir and not request.keep and report.exit_code == 0 and interrupted is None:
        remove_run_dir(run.run_dir)
        return Checked(report, "", None)
    return Checked(report, run.run_dir, interrupted)


def _refuse_unregistered(run: RunRecord, save: Callable[[Report], None]) -> None:
    """Raise UsageError where the ranks found that the module has no backend of that name; only torch can tell them."""
    why = "" if run.place.nodes > 1 else next(filter(None, map(unregistered_backend, run.launch.trials)), "")
    if why:
        with contextlib.suppress(OutputError):
            save(replace(unjudged(run, f"--backend: {why}", None), exit_code=UsageError.exit_code))
        remove_run_dir(run.run_dir)
        raise UsageError(f"--backend: {why}")


def _try_storage(run: RunRecord, directory: str) -> RunRecord:
    """Try the directory before there is anything to lose: UsageError where there is none."""
    since = time.monotonic()
    writers = max(1, min(run.path.world_size, NODE_WRITERS))
    try:
        run = replace(run, storage=measure_storage(directory, writers, min(BUDGET_S, (run.ends_at() - since) / 4)))
    except Interrupted as error:
        stopped = replace(run.launch, interrupted=error, problem=f"{error} while {directory} was tried")
        run = replace(run, launch=stopped)
    return replace(run, durations_s=(*run.durations_s, ("storage", time.monotonic() - since)))


def _torch_problem(node: NodeFacts) -> str:
    if isinstance(node.software, Gap):
        return f"what Python and torch are installed could not be read: {node.software.reason}"
    return f"torch can't be used: {node.software.torch.reason}" if isinstance(node.software.torch, Gap) else ""


def _launch(run: RunRecord, watch: Watcher) -> tuple[RunRecord, Peers | None]:
    """Have the ranks try what was planned; whatever ends that, also a signal, what came before it is kept."""
    why_no_ranks, launched, peers = run.launch.problem, Launch(), None
    try:
        run = replace(run, run_dir=make_run_dir(), outside_before=probe_outside_events(live_machine()))
        if run.request.is_played:
            write_machine(run.run_dir, run.node, run.chosen)
        spec = build_spec(run, machine_path(run.run_dir) if run.request.is_played else "")
        machine, elsewhere = run.watching.machine, run.request.is_other_machine
        run = replace(run, watching=start_hardware_watch(machine, run.path, elsewhere, run.run_dir))
        kill_at = run.ends_at() - LAUNCHER_MARGIN_S
        if run.place.nodes > 1:
            spec, peers = _meet(run, spec, launched)
        if not why_no_ranks:
            launch(spec, run.environ, launched, watch, kill_at, peers)
        elif peers is None:
            launched.fail(why_no_ranks)
        else:
            launched.end_solo(why_no_ranks)
            meet_without_ranks(peers, launched, watch, kill_at)
    except (Exception, Interrupted) as error:  # noqa: BLE001  what the ranks reported until then is not lost with it
        launched.stop(error)
    result = launched.result
    if result.problem and run.outside_before:
        since = events_between(run.outside_before, probe_outside_events(live_machine()))
        result = replace(result, problem=traced(result.problem, since, own_limits()))
    trials_s = time.monotonic() - result.started_at - result.ready_after_s
    durations_s = (*run.durations_s, ("start of the ranks", result.ready_after_s), ("trials", trials_s))
    if result.paused_s:
        durations_s = (*durations_s, (PAUSED, result.paused_s))
    return replace(run, launch=result, durations_s=durations_s), peers


def _meet(run: RunRecord, spec: RunSpec, launched: Launch) -> tuple[RunSpec, Peers | None]:
    """Return what this node's ranks try before they go on with the other nodes', and this node's part in the meeting.

    None where the nodes can't meet: then there is no more than what the ranks try by themselves.
    """
    make_joint_dir(run.run_dir)
    times = times_of(time.monotonic(), run.ends_at())
    trials = replace(spec.trials, screen_all=False)
    spec = replace(spec, goes_on=True, trials=trials, deadline_monotonic_s=times.solo_by)
    try:
        return spec, open_meeting(
            run, times, spec, lambda result: solo_result_of(replace(run, launch=result), free_bytes_per_rank(run))
        )
    except MeetingError as error:
        launched.end_solo(f"the nodes could not meet: {error}")
        return replace(spec, goes_on=False), None


def _conclude(run: RunRecord, peers: Peers | None) -> tuple[Report, Interrupted | None]:
    """Return this node's report; with several nodes it is node 0's, where that came, and node 0 sends its own."""
    origins = (*run.place.origins, *(peers.node.origins if peers else ()))
    why_stopped = str(run.launch.interrupted or "")
    if isinstance(peers, Follower):
        adopted = None
        try:
            adopted = None if peers.report is None else decode(Report, peers.report)
        except MalformedInput as error:
            run = replace(run, launch=replace(run.launch, problem=f"node 0's report can't be read: {error}"))
        peers.finish(why_stopped or run.launch.problem)
        if adopted is not None:
            advice = advice_here(adopted.advice, run.place.node_rank)
            return replace(adopted, advice=advice, launch=origins, parts_tried=run.parts_tried), run.launch.interrupted
    joint = peers.joint_phase if isinstance(peers, Leader) else NO_JOINT_PHASE
    report, interrupted = judged_or_not(run, joint)
    report = replace(report, launch=origins)
    if isinstance(peers, Leader):
        done = {"kind": "report", "z": pack(encode(report))}
        peers.finish({"kind": "bye", "why": why_stopped} if why_stopped else done)
    return report, interrupted
