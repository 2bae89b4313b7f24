"""Join this node to the other nodes of a run, and choose the report that counts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from preflight import __version__
from preflight.check.report_builder import judged_or_not, solo_result_of
from preflight.check.run_record import RunRecord
from preflight.check.spec_builder import free_bytes_per_rank
from preflight.errors import Interrupted, MalformedInput, MeetingError
from preflight.model.codec import decode, encode
from preflight.model.joint import NO_JOINT_PHASE, PROTOCOL, Hello, JointPlan, SoloResult
from preflight.model.network_survey import NetworkSurvey
from preflight.model.placement import Origin
from preflight.model.report import Report
from preflight.model.run_spec import RunSpec
from preflight.search.nodes.joint_plan import advice_here, plan_jointly, why_not_joint
from preflight.trial.launch_result import Launch, LaunchResult
from preflight.trial.launcher import Peers
from preflight.trial.nodes.follower import Follower
from preflight.trial.nodes.leader import Leader
from preflight.trial.nodes.meeting_point import listening_addresses, resolve
from preflight.trial.nodes.network_survey import survey_network
from preflight.trial.nodes.peers import Member
from preflight.trial.nodes.queries import QuerySteps
from preflight.trial.nodes.wire import pack
from preflight.trial.run_dir import make_joint_dir

RESOLVE_S = 3.0
MEET_SHARE, LONGEST_MEET_S = 1 / 3, 300.0  # of the time before the deadline, for all to have come
SOLO_SHARE = 0.5  # what the node may spend on itself
# Before the deadline, more than on one node: the last step's outcome, the judgement and the report cross the network.
JOINT_MARGIN_S = 3.0


@dataclass(frozen=True, slots=True)
class Times:
    """The deadlines of this node's run, of the rendezvous, and of this node's own test runs, in monotonic seconds."""

    ends_by: float
    meet_by: float
    solo_by: float


def times_of(now: float, ends_at: float) -> Times:
    """Divide the time from `now` to `ends_at`, and return the deadline of each part of the run.

    All times are in seconds of the monotonic clock.
    """
    left_s = max(0.0, ends_at - now)
    meet_s = min(left_s * MEET_SHARE, LONGEST_MEET_S)
    return Times(ends_at - JOINT_MARGIN_S, now + meet_s, now + left_s * SOLO_SHARE)


def meet(run: RunRecord, spec: RunSpec, launched: Launch) -> tuple[RunSpec, Peers | None]:
    """Connect this node to the other nodes, and return (specification, connection).

    The specification describes this node's own test runs. The connection is None if the nodes can't join.
    """
    # If the nodes can't join, `launched` gets the reason, and the ranks then run only their own tests.
    make_joint_dir(run.run_dir)
    times = times_of(time.monotonic(), run.ends_at())
    trials = replace(spec.trials, screen_all=False)
    spec = replace(spec, goes_on=True, trials=trials, deadline_monotonic_s=times.solo_by)
    try:
        return spec, _open(run, times, spec)
    except MeetingError as error:
        launched.end_solo(f"the nodes could not join: {error}")
        return replace(spec, goes_on=False), None


def agreed_report(run: RunRecord, peers: Peers | None) -> tuple[Report, Interrupted | None]:
    """Return the report of the run, and the signal that cut the run short, or None.

    In a run of several nodes, each node returns the report of node 0, or its own report as a fallback.
    """
    # Node 0 sends its report to the other nodes. A node returns its own report if the report of node 0 did not arrive.
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


def _open(run: RunRecord, times: Times, spec: RunSpec) -> Leader | Follower:
    """Return this node's connection to the other nodes, as leader or follower.

    Raise MeetingError if node 0 can't listen.
    """
    place, facts, request = run.place, run.node, run.request

    def report_solo(result: LaunchResult) -> SoloResult:
        return solo_result_of(replace(run, launch=result), free_bytes_per_rank(run))

    hello = Hello(PROTOCOL, __version__, place.run_id, place.nodes, place.node_rank, facts.host, 0.0)
    node = Member(place, hello, spec, times.meet_by, times.ends_by, report_solo)
    netifs = facts.netifs if isinstance(facts.netifs, tuple) else ()
    if place.node_rank:
        return Follower(node, netifs)

    def plan(
        solo_results: Mapping[int, SoloResult], store_host: str, left_s: float, between: NetworkSurvey | None
    ) -> Mapping[int, JointPlan] | str:
        return why_not_joint(solo_results) or plan_jointly(solo_results, store_host, left_s, request, between)

    def learn(solo_results: Mapping[int, SoloResult]) -> QuerySteps:
        return survey_network(solo_results, place.run_id, request.checkpoint_dir or "")

    listening = listening_addresses(place.host, resolve(place.host, RESOLVE_S).addresses, netifs)
    leader = Leader(node, listening, netifs, plan, None if request.default_only else learn)
    where = ", ".join(address or "all interfaces" for address in listening.addresses)
    node.origins.append(Origin("listens", f"{where} port {leader.port}", listening.why))
    return leader
