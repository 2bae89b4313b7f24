"""Time `preflight check` on two nodes beside the bare torchrun of the same two, in pairs that take turns.

The nodes are network namespaces on one bridge of this machine, so all four ranks share its CPUs. The bare torchrun has
the static rendezvous and makes one group and one all_reduce. Exits 1 where the promise is missed, and 0 with a reason
where namespaces can't be made (they need root).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.bare_torchrun import environment, write_script
from tests.netns import Netns, can_make_netns, make_nodes, node_address

PAIRS = 5
RANKS = 2  # on each node
MOST_RATIO = 1.5
LIMIT_S = 120.0
MEETING_PORT, STORE_PORT = 29400, 29500


@dataclass(frozen=True, slots=True)
class Pair:
    """The seconds until both nodes were through, one kind right after the other."""

    check_s: float
    torchrun_s: float


def ratio_of_medians(pairs: Sequence[Pair]) -> float:
    """Return the median of preflight over the median of the bare torchrun."""
    return statistics.median(p.check_s for p in pairs) / statistics.median(p.torchrun_s for p in pairs)


def check_on(number: int) -> list[str]:
    """Return one node's preflight."""
    place = ["--nnodes", "2", "--node-rank", str(number), "--rdzv-endpoint", f"node0:{MEETING_PORT}"]
    return [sys.executable, "-m", "preflight", "check", "--nproc", str(RANKS), "--profile", "quick", *place]


def torchrun_on(number: int, script: str) -> list[str]:
    """Return one node's torchrun."""
    place = ["--nnodes", "2", "--node-rank", str(number), "--nproc-per-node", str(RANKS)]
    meeting = ["--rdzv-backend", "static", "--master-addr", node_address(0), "--master-port", str(STORE_PORT)]
    return [sys.executable, "-m", "torch.distributed.run", *place, *meeting, script]


def timed_s(nodes: Sequence[Netns], commands: Sequence[list[str]], folder: Path) -> float:
    """Run a command on each node at once; return how long it took until the last had ended."""
    environ = environment(os.environ, str(folder))
    running = []
    since = time.monotonic()
    for number, (node, command) in enumerate(zip(nodes, commands, strict=True)):
        cwd = folder / f"node{number}"
        cwd.mkdir(exist_ok=True)
        with (cwd / "page").open("w") as page:
            argv = (*node.named(f"node{number}"), *command)
            running.append(subprocess.Popen(argv, env=environ, cwd=cwd, stdin=subprocess.DEVNULL, stdout=page,
                                            stderr=page))  # fmt: skip
    codes = [process.wait(timeout=LIMIT_S) for process in running]
    took_s = time.monotonic() - since
    if any(codes):
        raise SystemExit(f"{' '.join(commands[0])} ended with {codes}:\n{(folder / 'node0' / 'page').read_text()}")
    return took_s


def run_pairs(count: int) -> list[Pair]:
    """Run both once to warm caches, then pairs that begin with either in turn."""
    with tempfile.TemporaryDirectory(prefix="preflight-bench-") as name, make_nodes(2) as nodes:
        folder = Path(name)
        script = write_script(name)
        kinds = {
            "check": [check_on(number) for number in range(2)],
            "torchrun": [torchrun_on(number, script) for number in range(2)],
        }
        pairs = []
        for turn in range(count + 1):
            order = ("torchrun", "check") if turn % 2 else ("check", "torchrun")
            took = {kind: timed_s(nodes, kinds[kind], folder) for kind in order}
            pairs.append(Pair(took["check"], took["torchrun"]))
        return pairs[1:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    asked = parser.parse_args()
    if asked.pairs < 1:
        parser.error("give at least 1 pair")
    if not can_make_netns():
        sys.stdout.write("two nodes: skipped: network namespaces need root and iproute2\n")
        return 0
    pairs = run_pairs(asked.pairs)
    ratio = ratio_of_medians(pairs)
    sys.stdout.write(
        f"two nodes: {len(pairs)} pairs, {RANKS} ranks on each of two namespaces, gloo\n"
        f"  preflight check --profile quick {statistics.median(p.check_s for p in pairs):7.3f} s (median)\n"
        f"  bare torchrun, one all_reduce   {statistics.median(p.torchrun_s for p in pairs):7.3f} s (median)\n"
        f"  ratio of medians {ratio:.2f} (at most {MOST_RATIO}); "
        f"pair by pair {' '.join(f'{p.check_s / p.torchrun_s:.2f}' for p in pairs)}\n"
    )
    return 0 if ratio <= MOST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
