"""The launcher's part in a run: start the ranks, read the ranks' reports, and end all processes in time."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from preflight.errors import LaunchError
from preflight.model.run_spec import RunSpec, joint_dir
from preflight.system import processes
from preflight.system.child import ChildProcess
from preflight.system.shm_segments import noted_segments, remove_segments, segments_of_all
from preflight.system.signals import held_back
from preflight.system.waiting import wait_for
from preflight.system.wakeups import OwnTime
from preflight.trial.agent_process import AgentProcess
from preflight.trial.launch_result import Launch, LaunchResult, how_ended, parse_event
from preflight.trial.nodes.follower import Follower
from preflight.trial.nodes.leader import Leader
from preflight.trial.run_dir import agent_log_path, events_path, last_words, lifeline_path, spec_path, write_spec

POLL_S = 0.05
KILL_WAIT_S = 2.0

Peers = Leader | Follower  # the other nodes, as this one meets them
Watcher = Callable[[LaunchResult], None]


def launch(
    spec: RunSpec,
    agent: AgentProcess,
    launched: Launch,
    watch: Watcher,
    kill_at: float,
    peers: Peers | None = None,
) -> None:
    """Run `spec` on the agent, and record the agent's events in `launched` until the run ends.

    The run ends at the latest at `kill_at` (monotonic seconds). Raise LaunchError if the agent has no process.
    """
    # `watch` receives the results so far, to show the progress. At the end, no process of the run is left, even after
    # an exception.
    if agent.process is None:
        raise LaunchError(agent.problem)
    write_spec(spec)
    processes.adopt_orphans()
    own = {agent.process.pid} | processes.descendants_of(agent.process.pid)
    foreign = processes.descendants_of(os.getpid()) - own  # of whoever uses preflight as a library
    fifo = os.open(events_path(spec.run_dir), os.O_RDWR | os.O_NONBLOCK)  # for writing too: so no end of file
    lifeline = os.open(lifeline_path(spec.run_dir), os.O_RDWR | os.O_NONBLOCK)
    try:
        agent.order(spec_path(spec.run_dir), rank_environment(spec))
        _take_in(agent, agent.process, fifo, spec, launched, watch, kill_at, peers)
    finally:
        with held_back():  # a signal now would leave what is not yet ended or removed
            processes.stop_descendants(foreign)  # no process creates a file after the listing
            mapped = segments_of_all(processes.descendants_of(os.getpid()) - foreign)
            agent.process.signal(signal.SIGKILL)  # its death ends the others even where /proc does not show them
            survivors = processes.kill_descendants(foreign, KILL_WAIT_S)
            noted = (noted_segments(os.path.join(phase, "logs")) for phase in (spec.run_dir, joint_dir(spec.run_dir)))
            remove_segments(mapped.union(*noted))  # proven ours: another run's may look as forsaken
            agent.save_log(agent_log_path(spec.run_dir))
            os.close(fifo)
            os.close(lifeline)
    if survivors:
        launched.fail(f"processes {survivors} survived SIGKILL (uninterruptible in the kernel)")


def rank_environment(spec: RunSpec) -> dict[str, str]:
    """Return the environment variables that the launcher sets for the agent, and that the ranks inherit."""
    own = {"PREFLIGHT_EVENTS": events_path(spec.run_dir), "PREFLIGHT_LIFELINE": lifeline_path(spec.run_dir)}
    if spec.gpus.uuids:
        own |= {"CUDA_VISIBLE_DEVICES": ",".join(spec.gpus.uuids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if spec.machine_path:
        own["PREFLIGHT_MACHINE"] = spec.machine_path
    return own


def meet_without_ranks(peers: Peers, launched: Launch, watch: Watcher, kill_at: float) -> None:
    """Tell the other nodes that this node could not start its ranks, and return when the run is over.

    The run ends at the latest at `kill_at` (monotonic seconds).
    """
    # `watch` receives the results so far.
    while not launched.is_over:
        reading, writing = peers.files()
        wait_for(reading, writing, POLL_S)
        peers.turn(launched)
        watch(launched.result)
        if time.monotonic() > kill_at:
            launched.fail(launched.result.solo_problem)


def _take_in(
    agent: AgentProcess,
    process: ChildProcess,
    fifo: int,
    spec: RunSpec,
    launched: Launch,
    watch: Watcher,
    kill_at: float,
    peers: Peers | None,
) -> None:
    unread = b""
    own_time = OwnTime()
    while not launched.is_over:
        launched.stood_still(own_time.look(POLL_S))
        ended = process.reap()  # before reading, so that its last words are read
        reading, writing = peers.files() if peers else ([], [])
        gone = ended and not _may_be_gone(process, launched, peers)
        wait_for([fifo, *reading], writing, 0 if gone else POLL_S)
        *lines, unread = (unread + _read_all(fifo)).split(b"\n")
        for line in filter(None, lines):
            launched.take(parse_event(line))
        if ended and not (launched.is_over or _may_be_gone(process, launched, peers)):
            agent.save_log(agent_log_path(spec.run_dir))
            words = last_words(spec.run_dir)
            launched.fail(f"torchrun {how_ended(process.exitcode or 0)}{words and f': {words}'}")
        if peers:
            if launched.result.problem and launched.result.solo is None:
                launched.end_solo(launched.result.problem)
            peers.turn(launched)
        watch(launched.result)
        if not launched.is_over and time.monotonic() > kill_at:
            at = launched.result.running or "starting torchrun"
            launched.fail(f"the deadline came before the run finished, at {at}")


def _may_be_gone(process: ChildProcess, launched: Launch, peers: Peers | None) -> bool:
    """Return whether the run may continue although this node's ranks have ended.

    This is the case if the ranks never worked, or if node 0 stopped them.
    """
    if peers is None:
        return False
    return bool(launched.result.solo_problem) or (peers.needs_no_ranks and not process.exitcode)


def _read_all(fifo: int) -> bytes:
    data = b""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(fifo, 1 << 16):
            data += chunk
    return data
