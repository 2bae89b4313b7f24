"""Several nodes, between the phases of app.py and the meeting: what a node tells of itself, and what all make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from preflight import __version__
from preflight.errors import MalformedInput
from preflight.judge.check import Case, RunCheck, all_checks, run_checks
from preflight.launch.addresses import listening_addresses, resolve
from preflight.launch.guest import Guest
from preflight.launch.host import Host
from preflight.launch.launcher import Launched, Watcher, launch, meet_without_ranks
from preflight.launch.others import Node
from preflight.launch.rounds import Steps
from preflight.launch.ways import ask_all
from preflight.launch.wire import pack
from preflight.model.between import Between
from preflight.model.codec import decode, encode
from preflight.model.facts import NodeFacts
from preflight.model.finding import Finding, SkippedCheck
from preflight.model.placement import Origin, Placement
from preflight.model.report import Report
from preflight.model.run import RunSpec
from preflight.model.together import PROTOCOL, Alone, Common, Hello
from preflight.model.trial import TrialResult
from preflight.plan.together import Effort, advice_here, plan_together, why_apart

RESOLVE_S = 3.0
MEET_SHARE, LONGEST_MEET_S = 1 / 3, 300.0  # of the time before the deadline, for all to have come
ALONE_SHARE = 0.5  # what the node may spend on itself
# Before the deadline, more than on one node: the last step's outcome, the judgement and the report cross the network.
COMMON_MARGIN_S = 3.0


@dataclass(frozen=True, slots=True)
class Times:
    """Monotonic times of this node's run: when it ends, when all have to be here."""

    ends_by: float
    meet_by: float
    alone_by: float


def times_of(now: float, ends_at: float) -> Times:
    """Divide what is left."""
    left_s = max(0.0, ends_at - now)
    meet_s = min(left_s * MEET_SHARE, LONGEST_MEET_S)
    return Times(ends_at - COMMON_MARGIN_S, now + meet_s, now + left_s * ALONE_SHARE)


def open_meeting(
    place: Placement,
    times: Times,
    spec: RunSpec,
    facts: NodeFacts,
    tell_alone: Callable[[Launched], Alone],
    effort: Effort,
    checkpoint_dir: str = "",
) -> Host | Guest:
    """Take this node's part in the meeting; MeetingError where node 0 can't listen."""
    hello = Hello(PROTOCOL, __version__, place.run_id, place.nodes, place.node_rank, facts.host, 0.0)
    node = Node(place, hello, spec, times.meet_by, times.ends_by, tell_alone)
    netifs = facts.netifs if isinstance(facts.netifs, tuple) else ()
    if place.node_rank:
        return Guest(node, netifs)

    def plan(
        alones: Mapping[int, Alone], store_host: str, left_s: float, between: Between | None
    ) -> Mapping[int, Common] | str:
        return why_apart(alones) or plan_together(alones, store_host, left_s, effort, between)

    def learn(alones: Mapping[int, Alone]) -> Steps:
        return ask_all(alones, place.run_id, checkpoint_dir)

    listening = listening_addresses(place.host, resolve(place.host, RESOLVE_S).addresses, netifs)
    host = Host(node, listening, netifs, plan, None if effort.default_only else learn)
    where = ", ".join(address or "all interfaces" for address in listening.addresses)
    node.origins.append(Origin("listens", f"{where} port {host.port}", listening.why))
    return host


def common_findings(alones: Mapping[int, Alone], case: Case) -> tuple[tuple[Finding, ...], tuple[SkippedCheck, ...]]:
    """Return what the checks find in the common trials and all nodes, and what trials on single nodes had shown."""
    findings, skipped = run_checks(all_checks(), case)
    of_runs = {check.name for check in all_checks() if isinstance(check, RunCheck)}
    alone = [f for f in _by_host(alones) if f.check in of_runs]
    return (*findings, *alone), skipped


def separate_findings(alones: Mapping[int, Alone]) -> tuple[tuple[Finding, ...], tuple[SkippedCheck, ...]]:
    """Return what each node had found by itself, where they were not tried together."""
    skipped = [
        replace(each, reason=f"{alone.host}: {each.reason}")
        for alone in alones.values()
        for each in alone.skipped_checks
    ]
    return tuple(_by_host(alones)), tuple(skipped)


def _by_host(alones: Mapping[int, Alone]) -> list[Finding]:
    found = []
    for alone in alones.values():
        for finding in alone.findings:
            named = finding.subject if alone.host in finding.subject else f"{alone.host}, {finding.subject}"
            found.append(replace(finding, subject=named))
    return found


def launch_with(
    others: Host | Guest | None,
    spec: RunSpec,
    environ: Mapping[str, str],
    launched: Launched,
    watch: Watcher,
    kill_at: float,
) -> None:
    """Launch this node's ranks, where they can be, and have the other nodes hear of it in any case."""
    why_no_ranks, launched.problem = launched.problem, ""
    if others is None:
        if not why_no_ranks:
            launch(spec, environ, launched, watch, kill_at)
        launched.problem = launched.problem or why_no_ranks
    elif why_no_ranks:
        launched.end_alone(why_no_ranks)
        meet_without_ranks(others, launched, watch, kill_at)
    else:
        launch(spec, environ, launched, watch, kill_at, others)


def conclude(
    place: Placement,
    others: Host | Guest | None,
    launched: Launched,
    interrupted: str,
    report_of: Callable[[tuple[TrialResult, ...], Mapping[int, Alone], bool, Between | None], Report],
) -> Report:
    """Return this node's report; with several nodes it is node 0's, where that came, and node 0 sends its own."""
    origins = (*place.origins, *(others.node.origins if others else ()))
    if isinstance(others, Guest):
        adopted = _adopted(others, launched)
        others.finish(interrupted or launched.problem)
        if adopted is not None:
            return replace(adopted, advice=advice_here(adopted.advice, place.node_rank), launch=origins)
    alones = others.alones() if isinstance(others, Host) else {}
    together = isinstance(others, Host) and others.has_begun
    trials = launched.trials if together else launched.alone or launched.trials
    between = others.between if isinstance(others, Host) else None
    report = replace(report_of(tuple(trials), alones, together, between), launch=origins)
    if isinstance(others, Host):
        last = {"kind": "bye", "why": interrupted} if interrupted else {"kind": "report", "z": pack(encode(report))}
        others.finish(last)
    return report


def _adopted(guest: Guest, launched: Launched) -> Report | None:
    """Return node 0's report, None where it did not come or can't be read."""
    if guest.report is None:
        return None
    try:
        return decode(Report, guest.report)
    except MalformedInput as error:
        launched.problem = f"node 0's report can't be read: {error}"
        return None
