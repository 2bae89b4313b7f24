"""How fast `preflight explain` reads, and how much memory it takes: beside `grep -cE` with the same anchors.

    python -m scripts.bench_explain [--megabytes 400] [--gigabytes 2]

The log is made up: training steps, progress bars, NCCL at INFO, warnings, and a failure at its end. Memory is the peak
of a process of its own that reads the large log. Exits 1 where a promise is missed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from preflight.explain.cause import all_causes
from preflight.explain.context_lines import PATTERNS

SIGNS = [sign for cause in all_causes() for sign in cause.signs]
BLOCK_BYTES = 8 << 20
MEASURE = """
import resource, sys, time
from preflight.explain.explain_files import explain_paths
start = time.perf_counter()
explanation = explain_paths(sys.argv[1:])
took_s = time.perf_counter() - start
print(took_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, explanation.causes[0].cause)
"""
SHARES = (45, 25, 20, 9.5, 0.5)
LEAST_MB_S = 100.0
LEAST_RATIO = 0.6  # of grep's speed, beside it
PAIRS = 5
MOST_MIB = 150.0
FAILURE = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/job/train.py", line 88, in <module>\n'
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a "
    "total capacity of 79 GiB\n"
    "[rank0]:[E602 11:17:52.185053341 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=4242, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600091 milliseconds\n"
)


def lines(seed: int) -> Iterator[str]:
    """Yield the lines of an ordinary run, in the mixture in which long jobs write them."""
    rng = random.Random(seed)
    for step in itertools.count(1):
        rank = rng.randrange(8)
        clock = f"{step // 60 % 60:02d}:{step % 60:02d}"
        kinds = (
            f"{rank}: {{'loss': {rng.random():.4f}, 'grad_norm': {rng.random():.4f}, 'learning_rate': 1e-05}}\n",
            f"\r {step % 100}%|{'█' * (step % 40)}| {step}/900000 [{clock}<9:59:59, {rng.random():.2f}s/it]",
            f"node-{rank}:1234:1300 [{rank}] NCCL INFO comm 0x7f{step:010x} 4096 bytes slot {step % 32}\n",
            f"[2026-11-21 19:{clock},{rank}] [INFO] [logging.py:96:log_dist] [Rank {rank}] step={step}, lr=[1e-05]\n",
            f"[rank{rank}]:[W602 11:17:52.185 Utils.cpp:21] Warning: retry {step}: ConnectionError: try again\n",
        )
        yield rng.choices(kinds, SHARES)[0]


def write_log(path: Path, size_bytes: int) -> None:
    """Write a log of that size, whose failure is at its end."""
    made, block, source = 0, [], lines(1)
    for line in source:
        block.append(line)
        made += len(line)
        if made > BLOCK_BYTES:
            break
    data = "".join(block).encode()
    with path.open("wb") as file:
        for _ in range(max(1, size_bytes // len(data))):
            file.write(data)
        file.write(FAILURE.encode())


def measure(path: Path) -> tuple[float, int, str]:
    """Return seconds, peak memory in KiB and the first cause."""
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True)
    took_s, peak_kib, cause = done.stdout.split()
    return float(took_s), int(peak_kib), cause


def _as_ere(pattern: str) -> str:
    """Write a pattern as grep's extended expressions know it."""
    for ours, greps in (
        ("(?:", "("),
        (r"\d", "[0-9]"),
        (r"[\w", "[a-zA-Z0-9_"),
        (r"\r?$", "$"),
        (r"[^\n]", "."),
        (r"[^)\n]", "[^)]"),
    ):
        pattern = pattern.replace(ours, greps)
    return pattern


def grep(path: Path) -> float:
    """Return the seconds that `grep -cE` takes with the same anchors."""
    with tempfile.NamedTemporaryFile("w", suffix=".patterns") as file:
        file.write("\n".join(_as_ere(pattern) for pattern in [*(sign.pattern for sign in SIGNS), *PATTERNS.values()]))
        file.flush()
        start = time.perf_counter()
        command = ["grep", "-c", "-a", "-E", "-f", file.name, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"})
        if done.returncode > 1:
            raise SystemExit(f"grep: {done.stderr[:300]}")
        return time.perf_counter() - start


def main() -> None:
    """Print both figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--gigabytes", type=float, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "job.log"
        write_log(path, arguments.megabytes * 1_000_000)
        # In turns: what else the machine does falls on both.
        pairs = [(measure(path)[0], grep(path)) for _ in range(PAIRS)]
        took_s, grep_s = (min(times) for times in zip(*pairs, strict=True))
        ratio = statistics.median(theirs / ours for ours, theirs in pairs)
        mb_s = _tell("explain", path, took_s, f"{len(SIGNS)} signs of {len(all_causes())} causes")
        _tell("grep -cE", path, grep_s, "the same anchors")
        each = ", ".join(f"{theirs / ours:.2f}" for ours, theirs in pairs)
        sys.stdout.write(f"{ratio:.2f} of grep's speed, the median of {PAIRS} pairs in turn ({each})\n")
        write_log(path, int(arguments.gigabytes * 1e9))
        took_s, peak_kib, cause = measure(path)
        peak_mib = peak_kib / 1024
        _tell("explain", path, took_s, f"peak {peak_mib:.0f} MiB of memory; named {cause}")
    if mb_s < LEAST_MB_S or peak_mib > MOST_MIB or ratio < LEAST_RATIO:
        promised = f"{LEAST_MB_S:.0f} MB/s, {LEAST_RATIO} of grep's speed and at most {MOST_MIB:.0f} MiB"
        raise SystemExit(f"promised: at least {promised}")


def _tell(what: str, path: Path, took_s: float, about: str) -> float:
    size_mb = path.stat().st_size / 1e6
    sys.stdout.write(f"{what:9} {size_mb:6.0f} MB in {took_s:6.2f} s = {size_mb / took_s:5.0f} MB/s   ({about})\n")
    return size_mb / took_s


if __name__ == "__main__":
    main()
