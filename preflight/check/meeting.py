"""Several nodes: how this one takes part in their meeting, and by when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from preflight import __version__
from preflight.check.run_record import RunRecord
from preflight.model.joint import PROTOCOL, Hello, JointPlan, SoloResult
from preflight.model.network_survey import NetworkSurvey
from preflight.model.placement import Origin
from preflight.model.run_spec import RunSpec
from preflight.search.nodes.joint_plan import plan_jointly, why_not_joint
from preflight.trial.launch_result import LaunchResult
from preflight.trial.nodes.follower import Follower
from preflight.trial.nodes.leader import Leader
from preflight.trial.nodes.meeting_point import listening_addresses, resolve
from preflight.trial.nodes.network_survey import survey_network
from preflight.trial.nodes.peers import Member
from preflight.trial.nodes.queries import QuerySteps

RESOLVE_S = 3.0
MEET_SHARE, LONGEST_MEET_S = 1 / 3, 300.0  # of the time before the deadline, for all to have come
SOLO_SHARE = 0.5  # what the node may spend on itself
# Before the deadline, more than on one node: the last step's outcome, the judgement and the report cross the network.
JOINT_MARGIN_S = 3.0


@dataclass(frozen=True, slots=True)
class Times:
    """Monotonic times of this node's run: when it ends, when all have to be here."""

    ends_by: float
    meet_by: float
    solo_by: float


def times_of(now: float, ends_at: float) -> Times:
    """Divide what is left."""
    left_s = max(0.0, ends_at - now)
    meet_s = min(left_s * MEET_SHARE, LONGEST_MEET_S)
    return Times(ends_at - JOINT_MARGIN_S, now + meet_s, now + left_s * SOLO_SHARE)


def open_meeting(
    run: RunRecord, times: Times, spec: RunSpec, report_solo: Callable[[LaunchResult], SoloResult]
) -> Leader | Follower:
    """Take this node's part in the meeting; MeetingError where node 0 can't listen."""
    place, facts, request = run.place, run.node, run.request
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
