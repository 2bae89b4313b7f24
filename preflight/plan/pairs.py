"""Every pair of GPUs once, in rounds in which no GPU is in two pairs: a round-robin tournament by the circle method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from preflight.model.facts import Gap, NodeFacts
from preflight.model.gpu import P2pStatus
from preflight.model.gpu_test import Ending, PairTruth

Pair = tuple[int, int]


def rounds_of_pairs(count: int) -> tuple[tuple[Pair, ...], ...]:
    """Return all pairs of 0 .. count-1 in count - 1 rounds (count of them where it is odd), each pair in order.

    One player stands still and the others walk round the table; with an odd number the one who would meet the empty
    chair rests.
    """
    if count < 2:
        return ()
    players = count + count % 2
    rounds = []
    for turn in range(players - 1):
        circle = [players - 1, *((turn + i) % (players - 1) for i in range(players - 1))]
        met = ((circle[i], circle[players - 1 - i]) for i in range(players // 2))
        pairs = (tuple(sorted(pair)) for pair in met if max(pair) < count)
        rounds.append(tuple(sorted((low, high) for low, high in pairs)))
    return tuple(rounds)


def driver_says(node: NodeFacts, a: int, b: int) -> P2pStatus | Gap:
    """Return the driver's statement on reading and writing between two GPUs (nvml_index): what is not OK of the two."""
    if isinstance(node.gpu_p2p, Gap):
        return node.gpu_p2p
    found = next((pair for pair in node.gpu_p2p if {pair.a, pair.b} == {a, b}), None)
    if found is None:
        return Gap("the driver said nothing of this pair")
    return found.write if found.read is P2pStatus.OK else found.read


# What a pair's tests came to together: a fault in one of them outranks what the others could not tell.
WORST_FIRST = (Ending.WRONG, Ending.HANG, Ending.CRASH, Ending.INCONCLUSIVE, Ending.SKIPPED, Ending.OK)


def one_per_pair(tests: Sequence[PairTruth], node: NodeFacts) -> tuple[PairTruth, ...]:
    """Return one record per pair and repetition: its test of data, its test of speed and the driver's word together."""
    found: dict[tuple[int, int, int], PairTruth] = {}
    for test in tests:
        key = (test.repetition, test.a, test.b)
        told = replace(test, driver=driver_says(node, test.a, test.b))
        found[key] = _together(found[key], told) if key in found else told
    return tuple(found[key] for key in sorted(found))


def _together(first: PairTruth, second: PairTruth) -> PairTruth:
    worse = min((first, second), key=lambda test: WORST_FIRST.index(test.end))
    return replace(
        first,
        end=worse.end,
        problem=worse.problem,
        cuda=second.cuda if isinstance(first.cuda, Gap) else first.cuda,
        copies=(*first.copies, *second.copies),
        speeds=(*first.speeds, *second.speeds),
        duration_s=first.duration_s + second.duration_s,
    )
