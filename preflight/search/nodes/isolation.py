"""Find the faulty node if a group of nodes hangs or is slow.

The search tests pairs first, and larger groups only if all pairs work.
"""
# If a pair works, both of its nodes are good. Each other node is then tested with good nodes until a pair works, or
# until the node has failed with enough good nodes. If all pairs work, the groups double in size until a group fails.
# The failing group is then halved, and good nodes fill up the halves. A node that worked in a group of the failing size
# is not named as faulty. A node that failed with only one partner is not named either.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from preflight.model.isolation import GroupOutcome

OK, SLOW, DEAD = GroupOutcome.OK, GroupOutcome.SLOW, GroupOutcome.DEAD
# Good partners with which a node must fail. SLOW needs one more, because other traffic may have slowed a trial.
PROOFS = {DEAD: 2, SLOW: 3}
Members = tuple[int, ...]  # of a group, as indices of nodes
Shown = Mapping[Members, GroupOutcome]  # the outcome of each group of a round: OK, SLOW or DEAD


@dataclass(frozen=True, slots=True)
class NodeGroupRound:
    """Groups of nodes to test at the same time, and the purpose of the round. No node is in two groups."""

    groups: tuple[Members, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Isolated:
    """The result of the search: nodes at fault, bad paths between good nodes, and undecided nodes."""

    dead: tuple[int, ...] = ()
    slow: tuple[int, ...] = ()
    paths: tuple[tuple[int, int], ...] = ()
    unresolved: tuple[int, ...] = ()
    ended_because: str = ""


def most_rounds(node_count: int) -> int:
    """Return the maximum number of rounds of the search: 2 log2 of the node count, but at least four."""
    return max(4, 2 * (node_count - 1).bit_length())


def next_round(node_count: int, history: Sequence[Shown]) -> NodeGroupRound | Isolated:
    """Return the next round of groups to test, or the result if the search is over.

    The nodes are 0 to `node_count` - 1. `history` has the outcome of each group in each earlier round.
    """
    pairs = _Pairs(node_count, history)
    if node_count < 3:
        reason = "fewer than three nodes can't show which node is at fault"
        return Isolated(unresolved=tuple(range(node_count)), ended_because=reason)
    if len(history) >= most_rounds(node_count):
        return pairs.end("no more rounds were allowed")
    if not history:
        return NodeGroupRound(tuple((i, i + 1) for i in range(0, node_count - 1, 2)), "neighbours")
    suspects = pairs.suspects()
    if suspects:
        groups = pairs.against_good(suspects)
        why = "suspects with proven good nodes" if pairs.good else "other partners: none has passed yet"
        return NodeGroupRound(groups, why) if groups else pairs.end("no new partner is left")
    if pairs.accused() or pairs.paths():
        return pairs.end("")
    return _Growth(node_count, history).next_round()


class _Pairs:
    """The conclusions from all trials of pairs of nodes."""

    def __init__(self, node_count: int, history: Sequence[Shown]) -> None:
        self.node_count = node_count
        shown = [(members, each) for done in history for members, each in done.items() if len(members) == 2]
        self.good = {node for members, each in shown if each is OK for node in members}
        self.failed: dict[int, list[tuple[GroupOutcome, int]]] = {node: [] for node in range(node_count)}
        for (one, other), each in shown:
            if each is not OK:
                self.failed[one].append((each, other))
                self.failed[other].append((each, one))

    def accusation(self, node: int) -> GroupOutcome | None:
        """Return DEAD or SLOW if the node was dead or slow with enough good nodes. Otherwise, return None."""
        proofs = [(each, partner) for each, partner in self.failed[node] if partner in self.good]
        partners = {
            DEAD: {partner for each, partner in proofs if each is DEAD},
            SLOW: {partner for _, partner in proofs},
        }
        enough = (each for each, met in partners.items() if met and len(met) >= min(PROOFS[each], len(self.good)))
        return next(enough, None)

    def accused(self) -> dict[int, GroupOutcome]:
        found = ((node, self.accusation(node)) for node in range(self.node_count) if node not in self.good)
        return {node: each for node, each in found if each is not None}

    def suspects(self) -> list[int]:
        """Return the nodes that have not passed in any pair and are not yet named as dead or slow."""
        accused = self.accused()
        return [node for node in range(self.node_count) if node not in self.good and node not in accused]

    def against_good(self, suspects: list[int]) -> tuple[Members, ...]:
        """Return pairs of a suspect and a good node that have not failed together.

        If no such pair is left, return pairs of suspects.
        """
        # No good node is in two pairs.
        free = sorted(self.good)
        groups = []
        for suspect in suspects:
            partner = self.stranger(suspect, free)
            if partner is not None:
                free.remove(partner)
                groups.append((suspect, partner))
        return tuple(groups) or self.strangers(suspects)

    def strangers(self, suspects: list[int]) -> tuple[Members, ...]:
        """Return disjoint pairs of suspects that have not failed with each other."""
        left, groups = list(suspects), []
        while left:
            node = left.pop(0)
            other = self.stranger(node, left)
            if other is not None:
                left.remove(other)
                groups.append((node, other))
        return tuple(groups)

    def stranger(self, node: int, others: list[int]) -> int | None:
        """Return the first node in `others` that has not failed together with `node`, or None."""
        met = {partner for _, partner in self.failed[node]}
        return next((each for each in others if each not in met), None)

    def paths(self) -> tuple[tuple[int, int], ...]:
        """Return the failed pairs of nodes in which both nodes passed with other partners."""
        # The path between the two nodes is at fault, or the failure was a passing disturbance.
        found = {
            (min(node, partner), max(node, partner))
            for node in self.good
            for _, partner in self.failed[node]
            if partner in self.good
        }
        return tuple(sorted(found))

    def end(self, ended_because: str) -> Isolated:
        dead, slow = _named(self.accused())
        return Isolated(dead, slow, self.paths(), tuple(self.suspects()), ended_because)


def _named(accused: Mapping[int, GroupOutcome]) -> tuple[Members, Members]:
    """Return the dead nodes and the slow nodes, each in ascending order."""
    dead, slow = (tuple(sorted(node for node, each in accused.items() if each is kind)) for kind in (DEAD, SLOW))
    return dead, slow


@dataclass(frozen=True, slots=True)
class _Growth:
    """The search in groups of more than two nodes, for faults that no pair of nodes shows.

    Groups double in size until one group fails. Each half of the failed group is then tested together with good nodes.
    """

    node_count: int
    history: Sequence[Shown]

    def next_round(self) -> NodeGroupRound | Isolated:
        large = [done for done in self.history if any(len(members) > 2 for members in done)]
        if not large:
            return self._groups_of(4)
        first_bad = next((i for i, done in enumerate(large) if any(each is not OK for each in done.values())), None)
        if first_bad is not None:
            return self._halve(min(map(len, large[first_bad])), large[first_bad:])
        size = 2 * max(map(len, large[-1]))
        if size > self.node_count // 2:
            return Isolated(ended_because="the fault appears in no half of the nodes, only in all nodes together")
        return self._groups_of(size)

    def _groups_of(self, size: int) -> NodeGroupRound | Isolated:
        if size > self.node_count // 2:
            return Isolated(ended_because="no pair shows the fault, and the group is too small to divide")
        groups = [tuple(range(start, start + size)) for start in range(0, self.node_count - size + 1, size)]
        rest = tuple(range(len(groups) * size, self.node_count))
        return NodeGroupRound((*groups[:-1], groups[-1] + rest), f"groups of {size}: every pair passed")

    def _halve(self, size: int, rounds: Sequence[Shown]) -> NodeGroupRound | Isolated:
        """Return the next round, or the end of the search. The round tests the halves of each failed part.

        If a part consists of a single node and failed twice among good nodes, this node is at fault.
        """
        good = {node for done in rounds for members, each in done.items() if each is OK for node in members}
        parts = [set(members) - good for members, each in rounds[0].items() if each is not OK]
        shown: dict[int, list[GroupOutcome]] = {}
        for done in rounds[1:]:
            tried = [(set(members) - good, each) for members, each in done.items() if each is not OK]
            reached = set().union(*done)
            parts = [*(part for part, _ in tried), *(part for part in parts if not part & reached)]
            for part, each in tried:
                if len(part) == 1:
                    shown.setdefault(min(part), []).append(each)
        parts = [part for part in parts if part]
        if not parts:
            return Isolated(ended_because="no part of the group fails with good nodes")
        if all(len(part) == 1 and len(shown.get(min(part), [])) >= 2 for part in parts):
            dead, slow = _named({node: DEAD if DEAD in proofs else SLOW for node, proofs in shown.items()})
            return Isolated(dead, slow, ended_because=f"the fault appears in groups of {size} only")
        return self._halves(parts, sorted(good), size)

    def _halves(self, parts: Sequence[set[int]], good: list[int], size: int) -> NodeGroupRound | Isolated:
        groups = []
        for part in sorted(parts, key=len):
            ordered = sorted(part)
            middle = (len(ordered) + 1) // 2
            halves = [half for half in (ordered[:middle], ordered[middle:]) if half]
            if sum(size - len(half) for half in halves) > len(good):
                continue  # it waits until more nodes are free
            for half in halves:
                need = size - len(half)
                groups.append(tuple(sorted([*half, *good[:need]])))
                good = good[need:]
        if not groups:
            reason = f"the fault appears in groups of {size}, and too few nodes are proven good"
            return Isolated(unresolved=tuple(sorted(set().union(*parts))), ended_because=reason)
        return NodeGroupRound(tuple(groups), f"halves of the groups of {size} that failed, with good nodes")
