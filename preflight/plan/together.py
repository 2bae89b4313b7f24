"""What several nodes try together, from what each found alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from preflight.model.advice import Advice, NodeEnv
from preflight.model.between import Between, NetifSet
from preflight.model.collective import Collective
from preflight.model.finding import Blame, Severity
from preflight.model.profile import Profile
from preflight.model.run import OwnEnv
from preflight.model.together import Alone, Common
from preflight.model.trial import AS_IS, Candidate, Scope, TrialResult
from preflight.plan import profiles
from preflight.plan.between_nodes import between_nodes
from preflight.plan.candidates import DEFAULT_CANDIDATE
from preflight.plan.duel import DUEL_TURNS, decision_sizes
from preflight.plan.ways import ways_between

MEETING_NETIF = "netif of the meeting"
REACHING_NETIF = "netif that reaches all"
ALONE = "needed alone"


@dataclass(frozen=True, slots=True)
class Effort:
    """What the common trials may cost; node 0's options decide for all."""

    profile: Profile
    collectives: tuple[Collective, ...]
    stage_limit_s: float | None
    default_only: bool


@dataclass(frozen=True, slots=True)
class Shared:
    """A candidate of all nodes with what each sets for it, by node rank."""

    candidate: Candidate
    env_of: Mapping[int, tuple[tuple[str, str], ...]]


def why_apart(alones: Mapping[int, Alone]) -> str:
    """Return why these nodes can't be tried together, "" where they can."""
    for node_rank, alone in alones.items():
        where = f"{alone.host} (node {node_rank})"
        if alone.problem:
            return f"the nodes were not tried together: {where}: {alone.problem}"
        failed = [f for f in alone.findings if f.severity is Severity.FAIL and f.blame is not Blame.HARNESS]
        if failed:
            return f"the nodes were not tried together: {where} fails by itself: {failed[0].check}"
    ways: dict[tuple[str, bool], str] = {}
    for alone in alones.values():
        ways.setdefault((alone.backend, alone.is_cpu_path), alone.host)
    if len(ways) > 1:
        told = ", ".join(f"{backend} on {host}" for (backend, _), host in ways.items())
        return f"the nodes were not tried together: they would not run the same: {told}"
    return ""


def plan_together(
    alones: Mapping[int, Alone], store_host: str, left_s: float, effort: Effort, between: Between | None = None
) -> dict[int, Common]:
    """Return what each node does, by node rank; ranks are numbered in the order of the nodes."""
    shared = tuple(shared_candidates(alones, effort.default_only, between))
    first = next(iter(alones.values()))
    on_gpu = first.backend == "nccl"
    sizes = profiles.sizes(effort.profile, on_gpu, min(alone.free_bytes_per_rank for alone in alones.values()))
    one = Common(
        nodes=len(alones),
        world_size=sum(alone.ranks for alone in alones.values()),
        first_rank=0,
        store_host=store_host,
        candidates=tuple(each.candidate for each in shared),
        own_env=(),
        screen_all=effort.profile is not Profile.QUICK,
        measures=profiles.measures(profiles.EFFORT[effort.profile], sizes, effort.collectives),
        duel_measures=profiles.measures(profiles.DUEL_EFFORT, decision_sizes(sizes, cpu_path=not on_gpu)),
        duel_turns=DUEL_TURNS,
        limits=profiles.stage_limits(first.backend, effort.stage_limit_s),
        left_s=left_s,
    )
    planned: dict[int, Common] = {}
    before = 0
    for node_rank, alone in alones.items():
        own = tuple(OwnEnv(each.candidate.name, each.env_of[node_rank]) for each in shared if each.env_of)
        node_sizes = () if planned else tuple(each.ranks for each in alones.values())
        ways = () if planned else ways_between(alones, between)
        planned[node_rank] = replace(one, first_rank=before, own_env=own, node_sizes=node_sizes, ways=ways)
        assert alone.ranks > 0  # a node without ranks has a problem
        before += alone.ranks
    return planned


def shared_candidates(
    alones: Mapping[int, Alone], default_only: bool = False, between: Between | None = None
) -> Iterator[Shared]:
    """Yield the default, what is inherited, interfaces that reach all, what nodes needed alone, what networks need."""
    yield Shared(DEFAULT_CANDIDATE, {})
    if default_only:
        return
    if any(alone.inherits_tuning for alone in alones.values()):
        yield Shared(Candidate(AS_IS, (), "what the job gets now, on each node its own", Scope.ANYWHERE), {})
    chosen = between.chosen_set if between else None
    if chosen is not None:
        yield _reaching(chosen)
    met = tuple((node_rank, alone.netif) for node_rank, alone in alones.items())
    if all(netif for _, netif in met) and (chosen is None or chosen.netifs != met):
        env_of = {node_rank: interface_env(alone.netif) for node_rank, alone in alones.items()}
        why = f"the nodes met through {', '.join(sorted({alone.netif for alone in alones.values()}))}"
        yield Shared(Candidate(MEETING_NETIF, env_of[0], why, Scope.ANYWHERE), env_of)
    if any(alone.env for alone in alones.values()):
        who = ", ".join(alone.host for alone in alones.values() if alone.env)
        own = {node_rank: alone.env for node_rank, alone in alones.items()}
        named = next(env for env in own.values() if env)
        yield Shared(Candidate(ALONE, named, f"what {who} needed to work alone", Scope.ANYWHERE), own)
    for candidate in between_nodes(alones, chosen):
        yield Shared(candidate, {})


def _reaching(chosen: NetifSet) -> Shared:
    env_of = {node_rank: interface_env(netif) for node_rank, netif in chosen.netifs}
    names = ", ".join(sorted({netif for _, netif in chosen.netifs}))
    why = f"{names} ({chosen.name}) is the fastest way that reached every node"
    return Shared(Candidate(REACHING_NETIF, env_of[0], why, Scope.ANYWHERE), env_of)


def interface_env(netif: str) -> tuple[tuple[str, str], ...]:
    """Return the variables that choose an interface, for all who read one."""
    return (("GLOO_SOCKET_IFNAME", netif), ("NCCL_SOCKET_IFNAME", f"={netif}"), ("TP_SOCKET_IFNAME", netif))


def hosts_by_rank(alones: Mapping[int, Alone]) -> tuple[str, ...]:
    """Return the host of every rank."""
    return tuple(alone.host for alone in alones.values() for _ in range(alone.ranks))


def with_hosts(trial: TrialResult, hosts: Sequence[str]) -> TrialResult:
    """Return the trial with the hosts of the ranks that its problem names."""
    named = [(rank, hosts[rank]) for rank in trial.culprits if rank < len(hosts)]
    if not trial.problem or not named:
        return trial
    told = ", ".join(f"rank {rank} is on {host}" for rank, host in named[:8])
    return replace(trial, problem=f"{trial.problem} ({told})")


def advice_of_nodes(
    advice: Advice, trials: Sequence[TrialResult], alones: Mapping[int, Alone], between: Between | None = None
) -> Advice:
    """Return the advice with what each node sets, where that differs; it was confirmed by all of them together."""
    confirmed = replace(advice, one_node_only=())
    won = next((trial.candidate for trial in trials if advice.env and trial.env == advice.env), "")
    shared = next((each for each in shared_candidates(alones, between=between) if each.candidate.name == won), None)
    if shared is None or len(set(shared.env_of.values())) < 2:
        return confirmed
    nodes = tuple(NodeEnv(alone.host, node_rank, shared.env_of[node_rank]) for node_rank, alone in alones.items())
    return replace(confirmed, env=nodes[0].env, nodes=nodes)


def advice_here(advice: Advice, node_rank: int) -> Advice:
    """Return the advice of all nodes as it is for one of them."""
    own = next((node.env for node in advice.nodes if node.node_rank == node_rank), advice.env)
    return replace(advice, env=own)
