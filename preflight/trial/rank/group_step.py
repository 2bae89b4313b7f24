"""Rounds of small process groups that find the faulty node. All per-rank agents and the coordinator take part.

The control channel has these keys, in addition to the keys in supervisor.py:

    step/I      {"kind": "groups"} and the fields of a GroupStep
    kill/I+1+G  a process ends the group G of step I; the other groups go on
    end/I/R     a list: how rank R's child ended, empty if R is in no group

The step after a step I with G groups is I+1+G. Each group has its own number, for its kill, its store and its logs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from preflight.model.codec import decode, encode
from preflight.model.collective import Collective
from preflight.model.gap import Gap
from preflight.model.isolation import ALL_RANKS, GroupOutcome, GroupTrial, Isolation, IsolationRound, RouteTrial
from preflight.model.samples import aggregate
from preflight.model.trial import Candidate, Outcome, TrialResult
from preflight.search.nodes import group_rounds as plan
from preflight.search.nodes.isolation import Isolated, NodeGroupRound
from preflight.search.nodes.route_isolation import EXTRA_ROUNDS, RouteRanks, route_env, route_rounds, route_trials
from preflight.trial.rank.outcome import RankAnswer, classify, steps_of
from preflight.trial.rank.step import Listener, Order, Rank, Step, Steps, assign, run_to_end, start

LEAST_S = 1.0


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive ranks on one node: `count` ranks from the rank `first`, with the extra variables `env`."""

    first: int
    count: int
    env: tuple[tuple[str, str], ...] = ()  # variables that override those of the configuration


@dataclass(frozen=True, slots=True)
class RankGroup:
    """The ranks of one process group, in the order of the nodes."""

    spans: tuple[Span, ...]

    @property
    def ranks(self) -> list[int]:
        """Return the group's ranks as numbered in the run. The position in the list is the rank in the group."""
        return [rank for span in self.spans for rank in range(span.first, span.first + span.count)]

    def env_of(self, rank: int) -> tuple[tuple[str, str], ...]:
        """Return the variables of rank `rank`, which override the variables of the configuration."""
        return next(span.env for span in self.spans if span.first <= rank < span.first + span.count)


@dataclass(frozen=True, slots=True)
class GroupStep:
    """Groups without common ranks, which all test one configuration at the same time."""

    label: str
    candidate: Candidate
    by_exec: bool
    groups: tuple[RankGroup, ...]


def take_groups(rank: Rank, index: int, order: Order, on_stage: Listener | None = None) -> int:
    """Run this rank's child process in its group of step `index`, and return the number of the next step."""
    # `order` is the GroupStep. How the child ended is published in a list, which is empty if this rank is in no group.
    step = decode(GroupStep, order)
    found = next(((g, group) for g, group in enumerate(step.groups) if rank.rank in group.ranks), None)
    answers = [] if found is None else [_take_part(rank, index + 1 + found[0], step, found[1], on_stage)]
    rank.channel.put(f"end/{index}/{rank.rank}", answers)
    return index + 1 + len(step.groups)


def _take_part(rank: Rank, number: int, step: GroupStep, group: RankGroup, on_stage: Listener | None) -> RankAnswer:
    own = Step(step.label, (step.candidate,), step.by_exec)
    measures = rank.spec.trials.duel_measures or rank.spec.trials.measures
    ranks = group.ranks
    whole = assign(rank, number, own, also=group.env_of(rank.rank))
    assignment = replace(whole, rank=ranks.index(rank.rank), world_size=len(ranks), measures=measures, turns=1)
    (answer,) = run_to_end(rank, number, [start(rank, assignment, step.by_exec)], on_stage)
    answer["end"]["rank"] = rank.rank
    return answer | {"why": rank.why_killed(number)}


class GroupConductor:
    """Rank 0's part in the rounds of groups, which run until the faulty node is found or the time is up."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._spec = steps.rank.spec
        self._sizes = self._spec.place.node_sizes
        self._first_of = [0, *accumulate(self._sizes)]

    def run(self, results: Sequence[TrialResult]) -> None:
        """Run rounds of groups if the results of the test runs so far make this useful, and report each round."""
        trials = self._spec.trials
        worth = plan.worth_dividing(len(self._sizes), trials.candidates, results, trials.screen_all)
        if worth is not None:
            any(self._run_with(worth, candidate) for candidate in worth.candidates)  # until one gets an answer

    def _run_with(self, worth: plan.Worth, candidate: Candidate) -> bool:
        """Run the rounds with one configuration.

        Return False if no group works and another configuration is left to try.
        """
        rounds: list[IsolationRound] = []
        while True:
            following = plan.next_groups(len(self._sizes), rounds, is_failing=worth.is_failing)
            if isinstance(following, NodeGroupRound) and self._left_s() < LEAST_S:
                following = Isolated((), (), (), (), "the deadline came before the rounds finished")
            if isinstance(following, Isolated):
                break
            rounds.append(self._take_round(following, candidate, len(rounds) + 1))
            if plan.nobody_works(rounds) and candidate != worth.candidates[-1]:
                return False
            self._publish(plan.isolation_of(worth, candidate.name, rounds, (), None))
        singles = self._rank_by_rank(following, rounds, candidate)
        isolation = plan.isolation_of(worth, candidate.name, rounds, singles, following)
        self._publish(isolation)  # the ways may take a stage's limit
        by_route = self._route_by_route(following, rounds, candidate, 1 if singles else 0)
        if by_route:
            self._publish(replace(isolation, by_route=by_route))
        return True

    def _publish(self, isolation: Isolation) -> None:
        self._steps.report({"event": "isolated", "isolation": encode(isolation)})

    def _left_s(self) -> float:
        return self._spec.deadline_monotonic_s - time.monotonic()

    def _take_round(self, round_: NodeGroupRound, candidate: Candidate, number: int) -> IsolationRound:
        since = time.monotonic()
        sizes, first_of = self._sizes, self._first_of
        label = f"isolation of the fault, round {number}"
        ordered = [tuple(sorted(group)) for group in round_.groups]
        spans = [RankGroup(tuple(Span(first_of[n], sizes[n]) for n in group)) for group in ordered]
        observed = self._take(label, candidate, spans)
        tried = tuple(_trial(nodes, answers) for nodes, answers in zip(ordered, observed, strict=True))
        return IsolationRound(round_.why, tried, time.monotonic() - since)

    def _rank_by_rank(
        self, end: Isolated, rounds: Sequence[IsolationRound], candidate: Candidate
    ) -> tuple[GroupTrial, ...]:
        """Try each rank of a node at fault with the same local rank of a good node, all pairs at once.

        The results show whether only one GPU or port of the node is at fault.
        """
        singles = plan.rank_by_rank(end, rounds, self._sizes)
        if not singles or self._left_s() < LEAST_S:
            return ()
        spans = [
            RankGroup(tuple(Span(self._first_of[node] + local, 1) for node in sorted((bad, good))))
            for bad, good, local in singles
        ]
        observed = self._take("isolation of the fault, rank by rank", candidate, spans)
        return tuple(
            _trial((bad, good), answers, local) for (bad, good, local), answers in zip(singles, observed, strict=True)
        )

    def _route_by_route(
        self, end: Isolated, rounds: Sequence[IsolationRound], candidate: Candidate, taken: int
    ) -> tuple[RouteTrial, ...]:
        """Try each interface and RDMA port of a node at fault with a good node, in the rounds that are left."""
        routes = self._spec.trials.routes
        tried: list[RouteTrial] = []
        for round_ in route_rounds(end, rounds, self._sizes, routes, EXTRA_ROUNDS - taken):
            if self._left_s() < LEAST_S:
                break
            groups = [self._held(held) for held in round_.pairs]
            answered = self._take("isolation of the fault, path by path", candidate, groups)
            pairs = zip(round_.pairs, answered, strict=True)
            observed = [_trial(held.nodes, answers, held.local_rank) for held, answers in pairs]
            tried += route_trials(round_, observed, end.dead)
        return tuple(tried)

    def _held(self, held: RouteRanks) -> RankGroup:
        dialect = self._spec.backend.dialect
        return RankGroup(
            tuple(
                Span(self._first_of[node] + held.local_rank, 1, route_env(held.route.kind, held.end_of(node), dialect))
                for node in sorted(held.nodes)
            )
        )

    def _take(self, label: str, candidate: Candidate, groups: Sequence[RankGroup]) -> list[list[RankAnswer]]:
        """Have all groups run a trial of one configuration at the same time.

        Return one list for each group, with the answers of the group's ranks.
        """
        step = GroupStep(label, candidate, self._steps.by_exec, tuple(groups))
        order = {"kind": "groups"} | encode(step)
        answers = self._steps.take(order, step.label, take_groups, self._spec.deadline_monotonic_s)
        return [[answer for rank in group.ranks for answer in answers[rank]] for group in step.groups]


def _trial(nodes: tuple[int, ...], answers: Sequence[RankAnswer], local_rank: int = ALL_RANKS) -> GroupTrial:
    why = next((answer["why"] for answer in answers if answer["why"]), "")
    verdict = classify(answers, why)
    speed: float | Gap = Gap("it did not work")
    if verdict.outcome is Outcome.OK:
        measured = [aggregate(*step) for step in steps_of(answers) if step[0] is Collective.ALL_REDUCE]
        largest = max(measured, key=lambda result: result.size_bytes, default=None)
        speed = largest.busbw_gb_s if largest is not None else Gap("no all_reduce was measured")
    return GroupTrial(nodes, GroupOutcome.UNTRIED, verdict.outcome, verdict.problem, speed, local_rank)
