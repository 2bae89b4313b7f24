"""How well the search for bad nodes works: simulated clusters of 1,024 nodes, rounds, false accusations and misses."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from preflight.model.isolation import GroupOutcome
from preflight.search.nodes.isolation import Isolated, NodeGroupRound, Shown, most_rounds, next_round

NODES = 1024
RUNS = 400
DISTURBED = 0.005  # of the healthy pairs look slow by chance in the second set


@dataclass(frozen=True, slots=True)
class Fault:
    """A bad node: how it shows, and in groups from which size on."""

    observed: GroupOutcome
    from_size: int


def observe(
    group: Sequence[int], faults: dict[int, Fault], bad_path: frozenset[int], chance: random.Random, disturbed: float
) -> GroupOutcome:
    """Return what a group of the simulated cluster shows."""
    shown = [faults[node].observed for node in group if node in faults and len(group) >= faults[node].from_size]
    if bad_path <= set(group) and bad_path:
        shown.append(GroupOutcome.DEAD)
    if chance.random() < disturbed:
        shown.append(GroupOutcome.SLOW)
    return max(shown, default=GroupOutcome.OK, key=list(GroupOutcome).index)


def search(
    node_count: int, faults: dict[int, Fault], bad_path: frozenset[int], chance: random.Random, disturbed: float
) -> tuple[Isolated, int]:
    """Run the planner to its end; return its answer and the rounds that it took."""
    history: list[Shown] = []
    while True:
        match next_round(node_count, history):
            case Isolated() as end:
                return end, len(history)
            case NodeGroupRound(groups=groups):
                members = [node for group in groups for node in group]
                assert len(members) == len(set(members)), "a node was asked to be in two groups at once"
                history.append({group: observe(group, faults, bad_path, chance, disturbed) for group in groups})


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> int:
    """Print a line per kind of cluster; 1 if anybody was accused falsely or missed."""
    wrong = 0
    say(f"isolation of bad nodes: {NODES} simulated nodes, {RUNS} runs each, at most {most_rounds(NODES)} rounds")
    kinds = {
        "0 to 4 bad nodes, dead or slow": (2, 0.0, False),
        "the same, 1 of 200 good groups looks slow": (2, DISTURBED, False),
        "the same, one path between good nodes dead": (2, 0.0, True),
        "bad only in groups of 64 and more": (64, 0.0, False),
    }
    for name, (from_size, disturbed, path) in kinds.items():
        chance, since = random.Random(name), time.monotonic()
        false, missed, mixed, most = 0, 0, 0, 0
        for run in range(RUNS):
            bad = chance.sample(range(NODES), run % 5)
            faults = {node: Fault(chance.choice((GroupOutcome.SLOW, GroupOutcome.DEAD)), from_size) for node in bad}
            healthy = [node for node in range(NODES) if node not in faults]
            bad_path = frozenset(chance.sample(healthy, 2)) if path else frozenset[int]()
            end, rounds = search(NODES, faults, bad_path, chance, disturbed)
            named = {*end.dead, *end.slow}
            false += len(named - set(bad))
            missed += len(set(bad) - named)
            mixed += sum(faults[node].observed is not GroupOutcome.DEAD for node in end.dead if node in faults)
            mixed += sum(faults[node].observed is not GroupOutcome.SLOW for node in end.slow if node in faults)
            most = max(most, rounds)
        wrong += false + missed + mixed
        took_ms = (time.monotonic() - since) / RUNS * 1e3
        say(f"  {name}: {false} falsely accused, {missed} missed, {mixed} slow taken for dead or the other way round,")
        say(f"    at most {most} rounds, {took_ms:.0f} ms of planning per run")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
