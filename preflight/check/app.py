"""The module that connects the phases of a check: probe, plan, launch, judge, recommend, decide."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from preflight.check.inputs import read_baseline, read_fabric, read_history, read_policy
from preflight.check.meeting import agreed_report, meet
from preflight.check.report_builder import KILLED, unjudged, unprobed
from preflight.check.request import Request
from preflight.check.run_record import RunRecord
from preflight.check.spec_builder import build_spec, plan_trials, too_little_memory, without_room
from preflight.errors import Interrupted, OutputError, UsageError
from preflight.facts.counters import probe_outside_events
from preflight.facts.process import reported_environment
from preflight.facts.run import probe_node
from preflight.facts.storage import BUDGET_S, NODE_WRITERS, measure_storage
from preflight.judge.outside_cause import traced
from preflight.model.counters import events_between
from preflight.model.facts import Gap, NodeFacts
from preflight.model.report import PAUSED, Report
from preflight.model.trial import unregistered_backend
from preflight.search.backend_choice import choose_backend
from preflight.search.settings.environment import inherited_tuning, why_torch_would_end
from preflight.system.installed import module_exists
from preflight.system.kernel_queries import live_machine, own_limits
from preflight.system.machine import Machine
from preflight.system.signals import held_back
from preflight.trial.agent_process import AgentProcess
from preflight.trial.hardware_results import HardwareWatch
from preflight.trial.launch_result import Launch, LaunchResult
from preflight.trial.launcher import Peers, Watcher, launch, meet_without_ranks
from preflight.trial.nodes.placement import Asked, find_placement
from preflight.trial.run_dir import (
    keep_run_dir,
    machine_path,
    make_run_dir,
    remove_old_run_dirs,
    remove_run_dir,
    write_machine,
)

__all__ = ["Checked", "check", "unprobed"]

LAUNCHER_MARGIN_S = 0.6  # before the deadline: the launcher ends everything, then the report is written


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check: the report, the run's folder, and the signal that cut the check short, if any."""

    report: Report
    run_dir: str
    interrupted: Interrupted | None


def check(
    request: Request,
    machine: Machine,
    process: Machine,
    environ: Mapping[str, str],
    agent: AgentProcess,
    watch: Watcher,
    started_at: float,
    save: Callable[[Report], None] = lambda _: None,
    silent: Mapping[str, str] | None = None,
) -> Checked:
    """Run a check and return its outcome.

    If an error occurs after the start of the ranks, the report contains this error. The caller must end the process
    `agent`. Raise UsageError if an option is invalid, or if the module of --backend does not register the backend.
    """
    # The time limit counts from `started_at`, in monotonic seconds. The hardware is read from `machine`. The Python
    # installation, the environment and the limits are read from `process`, which is this machine unless another machine
    # is simulated. `watch` is called with the results so far. `silent` maps each probe without a result in the capture
    # to the reason. Before the ranks start, `save` gets the report that is valid if this process is killed.
    hardware = HardwareWatch(machine, xids=agent.xids)
    try:
        run = _probed(request, hardware, process, environ, started_at, silent)
    except Interrupted as error:
        return Checked(unprobed(request, error), "", error)
    except (OSError, MemoryError) as error:  # no process, no descriptor, no memory for it
        return Checked(unprobed(request, error), "", None)
    run = _planned(run)
    if request.checkpoint_dir and run.place.nodes == 1:
        run = _storage_tried(run, request.checkpoint_dir)
    peers = None
    if not run.launch.problem or run.place.nodes > 1:
        with contextlib.suppress(OutputError):  # what can't be written now is said at the end, if it still can't
            save(unjudged(run, KILLED, None))
        run, peers = _tried(run, agent, watch)
        _refuse_unregistered(run, save)
    report, interrupted = agreed_report(run, peers)
    if run.run_dir and request.keep:
        keep_run_dir(run.run_dir)
    elif run.run_dir and report.exit_code == 0 and interrupted is None:
        remove_run_dir(run.run_dir)
        return Checked(report, "", None)
    return Checked(report, run.run_dir, interrupted)


def _probed(
    request: Request, hardware: HardwareWatch, process: Machine, environ: Mapping[str, str], started_at: float,
    silent: Mapping[str, str] | None,
) -> RunRecord:  # fmt: skip
    """Read the policy, the baseline and earlier reports, and the node's facts; choose the backend and the GPUs."""
    policy, baseline = read_policy(request.policy), read_baseline(request.baseline)
    fabric = read_fabric(request.fabric)
    place = find_placement(Asked(request.nnodes, request.node_rank, request.rdzv_endpoint, request.rdzv_id), environ)
    for name, value in (("--baseline", request.baseline), ("--fabric", request.fabric)):
        if value is not None and place.nodes > 1:
            raise UsageError(f"{name} judges one node: run `preflight check` on each alone (--nnodes 1)")
    since = time.monotonic()
    node, _ = probe_node(hardware.machine, process, silent=silent)
    history = read_history(request.history, node, is_quiet=request.quiet)
    if request.is_played:  # as if the job were started there with what is set here
        node = replace(node, environment=reported_environment(environ))
    path = choose_backend(
        request.backend, request.gpus, request.nproc, environ.get("CUDA_VISIBLE_DEVICES"), node,
        is_elsewhere=request.is_played,
    )  # fmt: skip
    module = path.backend_module
    if module and not module_exists(module):
        raise UsageError(f"--backend {path.backend}@{module}: there is no module {module} (PYTHONPATH?)")
    return RunRecord(
        request, environ, started_at, place, node, path, inherited_tuning(environ), hardware,
        policy, baseline, fabric, history, durations_s=(("probe", time.monotonic() - since),),
    )  # fmt: skip


def _planned(run: RunRecord) -> RunRecord:
    """Return the run with its planned trials, or with the reason why no rank can start."""
    problem = _torch_problem(run.node) or why_torch_would_end(run.environ) or run.path.blocked
    problem = problem or too_little_memory(run)
    run = replace(run, plan=plan_trials(run), launch=LaunchResult(problem=problem))
    return replace(run, without_room=without_room(run))


def _torch_problem(node: NodeFacts) -> str:
    if isinstance(node.software, Gap):
        return f"what Python and torch are installed could not be read: {node.software.reason}"
    if not isinstance(node.software.torch, Gap):
        return ""
    why = node.software.torch.reason
    return why if why.startswith("torch ") else f"torch can't be used: {why}"


def _storage_tried(run: RunRecord, directory: str) -> RunRecord:
    """Return the run with the measured speed of the checkpoint directory `directory`.

    The speed is measured before the trials, so that an error loses no result. Raise UsageError if the directory does
    not exist.
    """
    since = time.monotonic()
    writers = max(1, min(run.path.world_size, NODE_WRITERS))
    try:
        run = replace(run, storage=measure_storage(directory, writers, min(BUDGET_S, (run.ends_at() - since) / 4)))
    except Interrupted as error:
        stopped = replace(run.launch, interrupted=error, problem=f"{error} while {directory} was tried")
        run = replace(run, launch=stopped)
    return replace(run, durations_s=(*run.durations_s, ("storage", time.monotonic() - since)))


def _tried(run: RunRecord, agent: AgentProcess, watch: Watcher) -> tuple[RunRecord, Peers | None]:
    """Return the run with the results of the planned trials, and the connection to the other nodes, if any.

    If an error or a signal ends the trials, the results up to that point are kept.
    """
    why_no_ranks, launched, peers = run.launch.problem, Launch(), None
    try:
        remove_old_run_dirs()
        with held_back():  # a signal between the two would leave the folder behind
            run = replace(run, run_dir=make_run_dir(), outside_before=agent.outside_before)
        if run.request.is_played:
            write_machine(run.run_dir, run.node, run.chosen)
        spec = build_spec(run, machine_path(run.run_dir) if run.request.is_played else "")
        run.watching.begin(run.path, run.run_dir)
        kill_at = run.ends_at() - LAUNCHER_MARGIN_S
        if run.place.nodes > 1:
            spec, peers = meet(run, spec, launched)
        if not why_no_ranks:
            launch(spec, agent, launched, watch, kill_at, peers)
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


def _refuse_unregistered(run: RunRecord, save: Callable[[Report], None]) -> None:
    """Raise UsageError if the ranks found that the module of --backend does not register the backend.

    Only torch knows the registered backends, and only the ranks import torch.
    """
    why = "" if run.place.nodes > 1 else next(filter(None, map(unregistered_backend, run.launch.trials)), "")
    if why:
        with contextlib.suppress(OutputError):
            save(replace(unjudged(run, f"--backend: {why}", None), exit_code=UsageError.exit_code))
        remove_run_dir(run.run_dir)
        raise UsageError(f"--backend: {why}")
