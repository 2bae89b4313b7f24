"""What is asked of the nodes before their common trials, and what is made of the answers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from preflight.errors import MalformedInput
from preflight.launch.rounds import Round, Steps, Told
from preflight.launch.shared_storage import ask_storage
from preflight.model.between import (
    NOT_MEASURED,
    Between,
    ClockOffset,
    NodeOffers,
    Offer,
    PathEnd,
    PathResult,
    PathTask,
)
from preflight.model.codec import decode, encode
from preflight.model.gap import Gap
from preflight.model.together import Alone
from preflight.plan.interface_choice import choose, judge_sets, results_of
from preflight.plan.interface_pairs import FULL_MATRIX_NODES, offers_of, plan_paths

CLOCK_ROUNDS = 3
CLOCK_S, LISTEN_S = 2.0, 4.0
REACH_S = 9.0  # to connect, say hello, carry large messages (each with its own deadline), and measure
RATE_S = 2.0  # of these, for measuring
MOST_RESULTS = 4096  # in the report


@dataclass(frozen=True, slots=True)
class PathAnswer:
    """What a node's child tells of one path."""

    end: PathEnd
    detail: str
    rtt_us: float | Gap = NOT_MEASURED
    gb_s: float | Gap = NOT_MEASURED


@dataclass(frozen=True, slots=True)
class ListenAnswer:
    """And of one address at which it listens."""

    port: int
    problem: str
    prefix_bits: int | Gap


def ask_all(alones: Mapping[int, Alone], run_id: str, checkpoint_dir: str) -> Steps:
    """Ask for clocks, for ways between the nodes, and where a directory is given for what it does for all of them."""
    since = time.monotonic()
    met = {rank: alone.netif for rank, alone in alones.items() if alone.netif}
    clocks = yield from _ask_clocks(alones)
    nodes = yield from _ask_to_listen(alones)
    results = yield from _ask_to_reach(nodes, met, run_id)
    storage = yield from ask_storage({rank: alone.host for rank, alone in alones.items()}, run_id, checkpoint_dir)
    sets = judge_sets(nodes, met, results)
    chosen = choose(sets)
    kept = _bounded(results, len(nodes))
    return Between(
        nodes=nodes, results=kept, untold=len(results) - len(kept), sets=sets, chosen=chosen.name if chosen else "",
        clocks=clocks, storage=storage, took_s=time.monotonic() - since,
    )  # fmt: skip


def _ask_clocks(alones: Mapping[int, Alone]) -> Generator[Round, dict[int, Told], tuple[ClockOffset, ...]]:
    best: dict[int, ClockOffset] = {}
    for _ in range(CLOCK_ROUNDS):
        answers = yield Round("clock", {rank: {} for rank in alones if rank}, CLOCK_S)
        for rank, told in answers.items():
            if isinstance(told.value, float) and not told.failure:
                within_s = max(0.0, (told.told_at - told.asked_at) / 2)
                offset_s = told.value - (told.told_at + told.asked_at) / 2
                found = ClockOffset(rank, alones[rank].host, offset_s, within_s)
                best[rank] = min(best.get(rank, found), found, key=lambda each: each.within_s)
    return tuple(best.values())


def _ask_to_listen(alones: Mapping[int, Alone]) -> Generator[Round, dict[int, Told], tuple[NodeOffers, ...]]:
    token = secrets.token_hex(16)
    offers = {rank: offers_of(alone.facts.netifs) for rank, alone in alones.items()}
    questions = {
        rank: {"token": token, "node_rank": rank, "addresses": [offer.address for offer in offers[rank]]}
        for rank in alones
    }
    answers = yield Round("listen", questions, LISTEN_S)
    return tuple(_offers(rank, alones[rank].host, offers[rank], answers[rank]) for rank in alones)


def _offers(node_rank: int, host: str, offers: Sequence[Offer], told: Told) -> NodeOffers:
    answers = _decoded(ListenAnswer, told, len(offers))
    if isinstance(answers, str):
        return NodeOffers(node_rank, host, tuple(replace(each, problem=answers) for each in offers), answers)
    pairs = zip(offers, answers, strict=True)
    listening = (
        replace(offer, port=each.port, problem=each.problem, prefix_bits=each.prefix_bits) for offer, each in pairs
    )
    return NodeOffers(node_rank, host, tuple(listening))


def _ask_to_reach(
    nodes: Sequence[NodeOffers], met: Mapping[int, str], run_id: str
) -> Generator[Round, dict[int, Told], tuple[PathResult, ...]]:
    planned = plan_paths(nodes, met, run_id)
    own = {node.node_rank: [offer.address for offer in node.offers] for node in nodes}
    questions = {
        rank: {"tasks": [_told(task) for task in tasks], "own": own[rank], "rate_s": RATE_S}
        for rank, tasks in planned.items()
        if tasks
    }
    answers = (yield Round("reach", questions, REACH_S)) if questions else {}
    found: dict[int, list[PathResult]] = {}
    for rank, told in answers.items():
        ends = _decoded(PathAnswer, told, len(planned[rank]))
        if isinstance(ends, str):
            ends = [PathAnswer(PathEnd.UNTRIED, ends)] * len(planned[rank])
        found[rank] = [
            PathResult(rank, t.netif, t.to_node, t.to_netif, end.end, end.detail[:200], end.rtt_us, end.gb_s)
            for t, end in zip(planned[rank], ends, strict=True)
        ]
    return results_of(planned, found)


def _told(task: PathTask) -> dict[str, Any]:
    told = encode(task)
    del told["gaps"]
    return told


def _decoded(kind: Any, told: Told, count: int) -> Any:
    """Return so many records of a kind from a node's answer, or why there are none."""
    if told.failure:
        return told.failure
    if not isinstance(told.value, list) or len(told.value) != count:
        return "its answer can't be read"
    try:
        return [decode(kind, each) for each in told.value]
    except MalformedInput as error:
        return f"its answer can't be read: {error}"


def _bounded(results: Sequence[PathResult], nodes: int) -> tuple[PathResult, ...]:
    """Return all results of few nodes, of many those that did not work, as far as a report can hold them."""
    bad_first = sorted(results, key=lambda each: each.end is PathEnd.OK)
    if nodes > FULL_MATRIX_NODES:
        bad_first = [each for each in bad_first if each.end is not PathEnd.OK]
    return tuple(bad_first[:MOST_RESULTS])
