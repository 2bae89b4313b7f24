"""Ask the nodes questions about the network before the test runs on all nodes, and evaluate the answers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from preflight.errors import MalformedInput
from preflight.model.codec import decode, encode
from preflight.model.gap import Gap
from preflight.model.joint import SoloResult
from preflight.model.network_survey import (
    ClockOffset,
    NetworkSurvey,
    NodeOffers,
    Offer,
    PathEnd,
    PathResult,
    PathTask,
)
from preflight.model.trial import NOT_MEASURED
from preflight.search.nodes.interface_choice import (
    FULL_MATRIX_NODES,
    choose,
    judge_sets,
    offers_of,
    plan_paths,
    results_of,
)
from preflight.trial.nodes.queries import Asking, Query, QuerySteps, Reply, ask
from preflight.trial.nodes.shared_storage import ask_storage

CLOCK_ROUNDS = 3
CLOCK_S, LISTEN_S = 2.0, 4.0
REACH_S = 9.0  # to connect, say hello, carry large messages (each with its own deadline), and measure
RATE_S = 2.0  # of these, for measuring
MOST_RESULTS = 4096  # in the report


@dataclass(frozen=True, slots=True)
class PathAnswer:
    """The result of one attempt to connect to another node, in the report to node 0."""

    end: PathEnd
    detail: str
    rtt_us: float | Gap = NOT_MEASURED
    gb_s: float | Gap = NOT_MEASURED


@dataclass(frozen=True, slots=True)
class ListenAnswer:
    """The result of listening at one address, in the report to node 0: the port, or the problem."""

    port: int
    problem: str
    prefix_bits: int | Gap


def survey_network(solo_results: Mapping[int, SoloResult], run_id: str, checkpoint_dir: str) -> QuerySteps:
    """Survey the clocks of all nodes and the paths between the nodes.

    The function is a generator. It yields the questions to send to the nodes, and returns the survey.
    """
    # `solo_results` has the results of each node's own test runs, by node rank. If `checkpoint_dir` is not "", the
    # nodes also test the storage of this directory.
    since = time.monotonic()
    met = {rank: solo.netif for rank, solo in solo_results.items() if solo.netif}
    clocks = yield from _ask_clocks(solo_results)
    nodes = yield from _ask_to_listen(solo_results)
    results = yield from _ask_to_reach(nodes, met, run_id)
    storage = yield from ask_storage({rank: solo.host for rank, solo in solo_results.items()}, run_id, checkpoint_dir)
    sets = judge_sets(nodes, met, results)
    chosen = choose(sets)
    kept = _bounded(results, len(nodes))
    return NetworkSurvey(
        nodes=nodes, results=kept, untold=len(results) - len(kept), sets=sets, chosen=chosen.name if chosen else "",
        clocks=clocks, storage=storage, took_s=time.monotonic() - since,
    )  # fmt: skip


def _ask_clocks(solo_results: Mapping[int, SoloResult]) -> Asking[tuple[ClockOffset, ...]]:
    best: dict[int, ClockOffset] = {}
    for _ in range(CLOCK_ROUNDS):
        answers = yield Query("clock", {rank: {} for rank in solo_results if rank}, CLOCK_S)
        for rank, reply in answers.items():
            if isinstance(reply.value, float) and not reply.failure:
                within_s = max(0.0, (reply.answered_at - reply.asked_at) / 2)
                offset_s = reply.value - (reply.answered_at + reply.asked_at) / 2
                found = ClockOffset(rank, solo_results[rank].host, offset_s, within_s)
                best[rank] = min(best.get(rank, found), found, key=lambda each: each.within_s)
    return tuple(best.values())


def _ask_to_listen(solo_results: Mapping[int, SoloResult]) -> Asking[tuple[NodeOffers, ...]]:
    token = secrets.token_hex(16)
    offers = {rank: offers_of(solo.facts.netifs) for rank, solo in solo_results.items()}
    questions = {
        rank: {"token": token, "node_rank": rank, "addresses": [offer.address for offer in offers[rank]]}
        for rank in solo_results
    }
    answers = yield Query("listen", questions, LISTEN_S)
    return tuple(_offers(rank, solo_results[rank].host, offers[rank], answers[rank]) for rank in solo_results)


def _offers(node_rank: int, host: str, offers: Sequence[Offer], reply: Reply) -> NodeOffers:
    answers = _decoded(ListenAnswer, reply, len(offers))
    if isinstance(answers, str):
        return NodeOffers(node_rank, host, tuple(replace(each, problem=answers) for each in offers), answers)
    pairs = zip(offers, answers, strict=True)
    listening = (
        replace(offer, port=each.port, problem=each.problem, prefix_bits=each.prefix_bits) for offer, each in pairs
    )
    return NodeOffers(node_rank, host, tuple(listening))


def _ask_to_reach(nodes: Sequence[NodeOffers], met: Mapping[int, str], run_id: str) -> Asking[tuple[PathResult, ...]]:
    planned = plan_paths(nodes, met, run_id)
    own = {node.node_rank: [offer.address for offer in node.offers] for node in nodes}
    questions = {
        rank: {"tasks": [_question(task) for task in tasks], "own": own[rank], "rate_s": RATE_S}
        for rank, tasks in planned.items()
        if tasks
    }
    answers = yield from ask("reach", questions, REACH_S)
    found: dict[int, list[PathResult]] = {}
    for rank, reply in answers.items():
        ends = _decoded(PathAnswer, reply, len(planned[rank]))
        if isinstance(ends, str):
            ends = [PathAnswer(PathEnd.UNTRIED, ends)] * len(planned[rank])
        found[rank] = [
            PathResult(rank, t.netif, t.to_node, t.to_netif, end.end, end.detail[:200], end.rtt_us, end.gb_s)
            for t, end in zip(planned[rank], ends, strict=True)
        ]
    return results_of(planned, found)


def _question(task: PathTask) -> dict[str, Any]:
    return {name: value for name, value in encode(task).items() if name != "gaps"}


def _decoded(kind: Any, reply: Reply, count: int) -> Any:
    """Return the `count` records of type `kind` in a node's reply.

    If the reply does not have these records, return a text with the reason.
    """
    if reply.failure:
        return reply.failure
    if not isinstance(reply.value, list) or len(reply.value) != count:
        return "its answer can't be read"
    try:
        return [decode(kind, each) for each in reply.value]
    except MalformedInput as error:
        return f"its answer can't be read: {error}"


def _bounded(results: Sequence[PathResult], nodes: int) -> tuple[PathResult, ...]:
    """Return the results to put into the report, at most MOST_RESULTS.

    If there are many nodes, the results are only the failures.
    """
    bad = [each for each in results if each.end is not PathEnd.OK]
    good = [each for each in results if each.end is PathEnd.OK] if nodes <= FULL_MATRIX_NODES else []
    return (*bad, *good)[:MOST_RESULTS]
