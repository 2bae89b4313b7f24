"""Which node is at fault when a group hangs or is slow: rounds of small groups, all of a round at the same time.

A group shows its worst member. Pairs come first; whoever is in a pair that passed is good, everybody else meets proven
good nodes until he passes or has failed with enough of them. Where all pairs pass, groups double until one fails, and
that one is halved beside good nodes. Nobody is accused who ever passed at that size, nor for one bad path to a partner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Seen(IntEnum):
    """What a group showed; the worst member decides."""

    OK = 0
    SLOW = 1
    DEAD = 2  # hung, crashed, or gave wrong data


# Dead is told by a limit of many seconds; slow by a figure, which somebody else's traffic can bend: hence once more.
PROOFS = {Seen.DEAD: 2, Seen.SLOW: 3}


@dataclass(frozen=True, slots=True)
class Observation:
    """A group that was tried, as indices of nodes, and what it showed."""

    members: tuple[int, ...]
    seen: Seen


@dataclass(frozen=True, slots=True)
class Round:
    """Disjoint groups to try at the same time, and what for."""

    groups: tuple[tuple[int, ...], ...]
    why: str


@dataclass(frozen=True, slots=True)
class Isolated:
    """The end: nodes at fault, paths at fault between good nodes, and who could be neither cleared nor accused."""

    dead: tuple[int, ...]
    slow: tuple[int, ...]
    paths: tuple[tuple[int, int], ...]
    unresolved: tuple[int, ...]
    told: str


def most_rounds(node_count: int) -> int:
    """Return after how many rounds the search gives up: twice the binary logarithm, at least four."""
    return max(4, 2 * (node_count - 1).bit_length())


def next_round(node_count: int, history: Sequence[Sequence[Observation]]) -> Round | Isolated:
    """Return the next round for nodes 0 to n-1 that fail as a whole, or the end. Pure: all state is the history."""
    pairs = _Pairs(node_count, history)
    if node_count < 3:
        return Isolated((), (), (), tuple(range(node_count)), "with fewer than three nodes nobody can be cleared")
    if len(history) >= most_rounds(node_count):
        return pairs.end("the rounds are used up")
    if not history:
        return Round(_neighbours(node_count), "neighbours")
    suspects = pairs.suspects()
    if suspects:
        groups = pairs.against_good(suspects)
        why = "suspects beside proven good nodes" if pairs.good else "other partners: nobody has passed yet"
        return Round(groups, why) if groups else pairs.end("no new partner is left")
    if pairs.accused() or pairs.paths():
        return pairs.end("")
    return _Growth(node_count, history).next_round()


def _neighbours(node_count: int) -> tuple[tuple[int, ...], ...]:
    return tuple((i, i + 1) for i in range(0, node_count - 1, 2))


class _Pairs:
    """What the pairs told."""

    def __init__(self, node_count: int, history: Sequence[Sequence[Observation]]) -> None:
        self.node_count = node_count
        seen = [each for done in history for each in done if len(each.members) == 2]
        self.good = {node for each in seen if each.seen is Seen.OK for node in each.members}
        self.failed: dict[int, list[tuple[Seen, int]]] = {node: [] for node in range(node_count)}
        for each in seen:
            if each.seen is not Seen.OK:
                one, other = each.members
                self.failed[one].append((each.seen, other))
                self.failed[other].append((each.seen, one))

    def proofs(self, node: int) -> list[tuple[Seen, int]]:
        """Return what a node showed with each proven good partner alone: there it is the worst member itself."""
        return [(seen, partner) for seen, partner in self.failed[node] if partner in self.good]

    def accusation(self, node: int) -> Seen | None:
        """Return dead or slow, where a node failed so with enough good partners and never passed."""
        if node in self.good:
            return None
        proofs = self.proofs(node)
        dead = {partner for seen, partner in proofs if seen is Seen.DEAD}
        if len(dead) >= min(PROOFS[Seen.DEAD], len(self.good)):
            return Seen.DEAD if dead else None
        return Seen.SLOW if len({p for _, p in proofs}) >= min(PROOFS[Seen.SLOW], len(self.good)) and proofs else None

    def accused(self) -> dict[int, Seen]:
        found = ((node, self.accusation(node)) for node in range(self.node_count) if node not in self.good)
        return {node: seen for node, seen in found if seen is not None}

    def suspects(self) -> list[int]:
        """Return who neither passed nor was accused."""
        accused = self.accused()
        return [node for node in range(self.node_count) if node not in self.good and node not in accused]

    def against_good(self, suspects: list[int]) -> tuple[tuple[int, ...], ...]:
        """Give each suspect a proven good partner of its own that it has not met; who finds none waits."""
        free = sorted(self.good)
        groups = []
        for suspect in suspects:
            met = {partner for _, partner in self.failed[suspect]}
            partner = next((node for node in free if node not in met), None)
            if partner is not None:
                free.remove(partner)
                groups.append((suspect, partner))
        return tuple(groups) or self.strangers(suspects)

    def strangers(self, suspects: list[int]) -> tuple[tuple[int, ...], ...]:
        """Pair suspects who have not met, as far as there are any."""
        left, groups = list(suspects), []
        while left:
            node = left.pop(0)
            met = {partner for _, partner in self.failed[node]}
            other = next((each for each in left if each not in met), None)
            if other is not None:
                left.remove(other)
                groups.append((node, other))
        return tuple(groups)

    def paths(self) -> tuple[tuple[int, int], ...]:
        """Return pairs that failed though both passed with others: the path between them, or a passing disturbance."""
        found = {
            (min(node, partner), max(node, partner))
            for node in self.good
            for _, partner in self.failed[node]
            if partner in self.good
        }
        return tuple(sorted(found))

    def end(self, told: str) -> Isolated:
        accused = self.accused()
        dead = tuple(sorted(node for node, seen in accused.items() if seen is Seen.DEAD))
        slow = tuple(sorted(node for node, seen in accused.items() if seen is Seen.SLOW))
        return Isolated(dead, slow, self.paths(), tuple(self.suspects()), told)


@dataclass(frozen=True, slots=True)
class _Growth:
    """Faults that no pair shows: groups double in size until one fails, and that one is halved beside good nodes."""

    node_count: int
    history: Sequence[Sequence[Observation]]

    def next_round(self) -> Round | Isolated:
        large = [done for done in self.history if any(len(each.members) > 2 for each in done)]
        if not large:
            return self._groups_of(4)
        first_bad = next((i for i, done in enumerate(large) if any(each.seen is not Seen.OK for each in done)), None)
        if first_bad is None:
            size = 2 * max(len(each.members) for each in large[-1])
            if size > self.node_count // 2:
                return Isolated((), (), (), (), "it shows in no half of the nodes, only in all of them together")
            return self._groups_of(size)
        size = min(len(each.members) for each in large[first_bad])
        return self._halve(size, large[first_bad:])

    def _groups_of(self, size: int) -> Round | Isolated:
        if size > self.node_count // 2:
            return Isolated((), (), (), (), "no pair shows it, and the group is too small to divide")
        groups = [tuple(range(start, start + size)) for start in range(0, self.node_count - size + 1, size)]
        rest = tuple(range(len(groups) * size, self.node_count))
        return Round((*groups[:-1], groups[-1] + rest), f"groups of {size}: every pair passed")

    def _halve(self, size: int, rounds: Sequence[Sequence[Observation]]) -> Round | Isolated:
        """Go on with the parts that failed; a part that is one node, filled up with good ones, is the node at fault."""
        good = {node for done in rounds for each in done if each.seen is Seen.OK for node in each.members}
        parts = [set(each.members) - good for each in rounds[0] if each.seen is not Seen.OK]
        worst: dict[int, list[Seen]] = {}
        for done in rounds[1:]:
            tried = [(set(each.members) - good, each.seen) for each in done if each.seen is not Seen.OK]
            reached = {node for each in done for node in each.members}
            waiting = [part for part in parts if not part & reached]
            parts = [*(part for part, _ in tried), *waiting]
            for part, seen in tried:
                if len(part) == 1:
                    worst.setdefault(next(iter(part)), []).append(seen)
        parts = [part for part in parts if part]
        if not parts:
            return Isolated((), (), (), (), "no part of the group fails beside good nodes")
        if all(len(part) == 1 and len(worst.get(next(iter(part)), [])) >= 2 for part in parts):
            dead = tuple(sorted(node for node, seen in worst.items() if Seen.DEAD in seen))
            slow = tuple(sorted(node for node, seen in worst.items() if Seen.DEAD not in seen))
            return Isolated(dead, slow, (), (), f"it shows in groups of {size} only")
        return self._halves(parts, sorted(good), size)

    def _halves(self, parts: Sequence[set[int]], good: list[int], size: int) -> Round | Isolated:
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
            unresolved = tuple(sorted(set().union(*parts)))
            return Isolated((), (), (), unresolved, f"it shows in groups of {size}, and too few nodes are proven good")
        return Round(tuple(groups), f"halves of the groups of {size} that failed, beside good nodes")
