"""Plan the test runs that span several nodes. The plan uses the results of each single node.

The functions do no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from preflight.model.finding import Blame, Severity
from preflight.model.joint import JointPlan, SoloResult
from preflight.model.network_survey import NetworkSurvey
from preflight.model.report import Advice, NodeEnv
from preflight.model.run_spec import NodePlace, OwnEnv
from preflight.model.trial import AS_IS, Candidate, Scope, TrialResult
from preflight.search import profiles
from preflight.search.nodes.route_isolation import interface_env, routes_between
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.search.settings.internode import between_nodes
from preflight.search.trial_plan import Wanted, trial_plan

MEETING_NETIF = "netif of the rendezvous"
REACHING_NETIF = "netif that reaches all"
ALONE = "needed alone"


@dataclass(frozen=True, slots=True)
class Shared:
    """A configuration for all nodes.

    If the settings differ between nodes, `env_of` has the settings of each node. Otherwise, `env_of` is empty.
    """

    candidate: Candidate
    env_of: Mapping[int, tuple[tuple[str, str], ...]]


def why_not_joint(solo_results: Mapping[int, SoloResult]) -> str:
    """Return why the nodes can't run tests together, or "" if nothing prevents this."""
    for node_rank, solo in solo_results.items():
        where = f"{solo.host} (node {node_rank})"
        if solo.problem:
            return f"the nodes were not tried together: {where}: {solo.problem}"
        failed = [f for f in solo.findings if f.severity is Severity.FAIL and f.blame is not Blame.HARNESS]
        if failed:
            return f"the nodes were not tried together: {where} fails alone: {failed[0].check}"
    routes: dict[tuple[str, bool], str] = {}
    for solo in solo_results.values():
        routes.setdefault((solo.backend, solo.is_cpu_path), solo.host)
    if len(routes) > 1:
        differing = ", ".join(f"{backend} on {host}" for (backend, _), host in routes.items())
        return f"the nodes were not tried together, because they would run different tests: {differing}"
    return ""


def plan_jointly(
    solo_results: Mapping[int, SoloResult],
    store_host: str,
    left_s: float,
    wanted: Wanted,
    between: NetworkSurvey | None = None,
) -> dict[int, JointPlan]:
    """Return the plan of each node for the test runs on all nodes, by node rank.

    `left_s` is the time left in seconds.
    """
    # Ranks are numbered in node order. `store_host` is node 0's address. `between` is the network survey.
    shared = tuple(shared_candidates(solo_results, wanted.default_only, between))
    first = next(iter(solo_results.values()))
    on_gpu = first.backend == "nccl"
    room = min(solo.free_bytes_per_rank for solo in solo_results.values())
    sizes = profiles.sizes(wanted.profile, on_gpu, room, wanted.sizes_bytes)
    candidates = tuple(each.candidate for each in shared)
    trials = trial_plan(
        wanted, candidates, first.backend, sizes, on_gpus=on_gpu, cpu_path=not on_gpu, nodes=len(solo_results)
    )
    world_size = sum(solo.ranks for solo in solo_results.values())
    planned: dict[int, JointPlan] = {}
    before = 0
    for node_rank, solo in solo_results.items():
        assert solo.ranks > 0  # a node without ranks has a problem
        own = tuple(OwnEnv(each.candidate.name, each.env_of[node_rank]) for each in shared if each.env_of)
        node_sizes = () if planned else tuple(each.ranks for each in solo_results.values())
        routes = () if planned else routes_between(solo_results, between)
        place = NodePlace(world_size, len(solo_results), solo.ranks, before, store_host, node_sizes)
        planned[node_rank] = JointPlan(place, replace(trials, own_env=own, routes=routes), left_s)
        before += solo.ranks
    return planned


def shared_candidates(
    solo_results: Mapping[int, SoloResult], default_only: bool = False, between: NetworkSurvey | None = None
) -> Iterator[Shared]:
    """Yield the configurations to test on all nodes, in order."""
    # The configurations are the default settings, the inherited environment, interfaces that reach all nodes, the
    # workarounds that single nodes needed, and settings for networks.
    yield Shared(DEFAULT_CANDIDATE, {})
    if default_only:
        return
    if any(solo.inherits_tuning for solo in solo_results.values()):
        yield Shared(Candidate(AS_IS, (), "what the job gets now, on each node its own", Scope.ANYWHERE), {})
    chosen = between.chosen_set if between else None
    if chosen is not None:
        names = ", ".join(sorted({netif for _, netif in chosen.netifs}))
        why = f"{names} ({chosen.name}) is the fastest network that reached every node"
        yield _interfaces(REACHING_NETIF, dict(chosen.netifs), why)
    met = {node_rank: solo.netif for node_rank, solo in solo_results.items()}
    if all(met.values()) and (chosen is None or chosen.netifs != tuple(met.items())):
        yield _interfaces(MEETING_NETIF, met, f"the nodes joined through {', '.join(sorted(set(met.values())))}")
    if any(solo.env for solo in solo_results.values()):
        who = ", ".join(solo.host for solo in solo_results.values() if solo.env)
        own = {node_rank: solo.env for node_rank, solo in solo_results.items()}
        named = next(env for env in own.values() if env)
        yield Shared(Candidate(ALONE, named, f"what {who} needed to work alone", Scope.ANYWHERE), own)
    for candidate in between_nodes(solo_results, chosen):
        yield Shared(candidate, {})


def _interfaces(name: str, netifs: Mapping[int, str], why: str) -> Shared:
    env_of = {node_rank: interface_env(netif) for node_rank, netif in netifs.items()}
    return Shared(Candidate(name, env_of[0], why, Scope.ANYWHERE), env_of)


def hosts_by_rank(solo_results: Mapping[int, SoloResult]) -> tuple[str, ...]:
    """Return the host of every rank, in rank order."""
    return tuple(solo.host for solo in solo_results.values() for _ in range(solo.ranks))


def with_hosts(trial: TrialResult, hosts: Sequence[str]) -> TrialResult:
    """Return `trial` with the hosts of the faulty ranks added to its problem text.

    `hosts` has the host of every rank.
    """
    named = [(rank, hosts[rank]) for rank in trial.culprits if rank < len(hosts)]
    if not trial.problem or not named:
        return trial
    where = ", ".join(f"rank {rank} is on {host}" for rank, host in named[:8])
    return replace(trial, problem=f"{trial.problem} ({where})")


def advice_of_nodes(
    advice: Advice,
    trials: Sequence[TrialResult],
    solo_results: Mapping[int, SoloResult],
    between: NetworkSurvey | None = None,
) -> Advice:
    """Return the advice from the test runs on all nodes.

    `nodes` has the settings of each node if the settings differ.
    """
    # All nodes together confirmed the settings, so no setting is limited to one node.
    confirmed = replace(advice, one_node_only=())
    won = next((trial.candidate for trial in trials if advice.env and trial.env == advice.env), "")
    shared = next(
        (each for each in shared_candidates(solo_results, between=between) if each.candidate.name == won), None
    )
    if shared is None or len(set(shared.env_of.values())) < 2:
        return confirmed
    nodes = tuple(NodeEnv(solo.host, node_rank, shared.env_of[node_rank]) for node_rank, solo in solo_results.items())
    return replace(confirmed, env=nodes[0].env, nodes=nodes)


def advice_here(advice: Advice, node_rank: int) -> Advice:
    """Return a copy of `advice` that has only the settings of node `node_rank`."""
    own = next((node.env for node in advice.nodes if node.node_rank == node_rank), advice.env)
    return replace(advice, env=own)
