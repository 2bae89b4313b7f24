"""The part of the rendezvous that is the same on every node.

This part holds the node's state, and decides whether a caller belongs to this run.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from preflight.model.device_job import NO_DEVICES
from preflight.model.joint import Hello, JointPlan, SoloResult
from preflight.model.placement import Origin, Placement
from preflight.model.run_spec import RunSpec, joint_dir
from preflight.trial.launch_result import LaunchResult
from preflight.trial.nodes.probe_process import PATHS, ProbeProcesses
from preflight.trial.nodes.relay import Relay
from preflight.trial.run_dir import write_spec

HELLO_S = 5.0  # for a caller to say who it is
FAREWELL_S = 5.0


@dataclass(slots=True)
class Member:
    """This node as a participant of the rendezvous, with its relay and its probes."""

    placement: Placement
    hello: Hello
    spec: RunSpec
    meet_by: float  # monotonic
    ends_by: float  # monotonic: when the common trials have to be over here
    report_solo: Callable[[LaunchResult], SoloResult]  # makes this node's own result; called once
    solo: SoloResult | None = None
    relay: Relay | None = None
    origins: list[Origin] = field(default_factory=list)  # what the rendezvous chose, and why
    probes: ProbeProcesses = field(default_factory=lambda: ProbeProcesses(os.environ))

    @property
    def fds(self) -> list[int]:
        """Return the descriptors of the path probes and of the relay.

        The caller's loop waits for these descriptors.
        """
        return [*self.probes.fds, *(self.relay.fds if self.relay else ())]

    def report(self, launched: LaunchResult) -> SoloResult:
        """Return the result of this node's own test runs.

        The first call makes the result from `launched`.
        """
        if self.solo is None:
            self.solo = self.report_solo(launched)
        return self.solo

    def begin(self, joint: JointPlan) -> None:
        """End the path probes. Then start this node's part of the joint test runs, which follow the plan `joint`."""
        self.probes.close()
        # Each node has looked for its own cures by itself, and tested its own GPUs; its RDMA ports are measured as
        # cures are.
        spec = replace(
            self.spec,
            run_dir=joint_dir(self.spec.run_dir),
            place=joint.place,
            trials=replace(joint.trials, cure_measures=self.spec.trials.cure_measures),
            deadline_monotonic_s=min(self.ends_by, time.monotonic() + joint.left_s),
            devices=NO_DEVICES,
            goes_on=False,
        )
        write_spec(spec)
        first = spec.place.first_rank
        ranks = range(first, first + spec.place.local_size)
        self.relay = Relay(os.path.join(spec.run_dir, "control"), ranks, is_leader=self.placement.node_rank == 0)

    def start_probes(self) -> None:
        """Start the path probes early, so that they are ready for the first question."""
        with contextlib.suppress(OSError):  # said when it is asked
            self.probes.start(PATHS)

    def close(self) -> None:
        self.probes.close()
        if self.relay is not None:
            self.relay.close()


def why_unlike(mine: Hello, theirs: Hello) -> str:
    """Return why a caller does not belong to this run, or "" if the caller belongs to this run.

    `theirs` is the message of the caller, and `mine` is the message of this node.
    """
    if theirs.run_id != mine.run_id:
        return f"it belongs to another run ({theirs.run_id}, here {mine.run_id})"
    if (theirs.protocol, theirs.preflight) != (mine.protocol, mine.preflight):
        return f"versions differ: preflight {theirs.preflight} there, {mine.preflight} on {mine.host}"
    if theirs.nodes != mine.nodes:
        return f"it expects {theirs.nodes} nodes, {mine.host} expects {mine.nodes}"
    if not 0 < theirs.node_rank < mine.nodes:
        return f"it calls itself node {theirs.node_rank} of {mine.nodes}, which is node 0's number"
    return ""
