"""How fast `preflight explain` reads, and how much memory it takes: beside `grep -cE` with the same anchors.

    python scripts/bench_explain.py [--megabytes 400] [--gigabytes 2]

The log is made up: training steps, progress bars, NCCL at INFO, warnings, tracebacks, and a failure at its end. Speed is
taken from one core; memory is the peak of a process of its own that reads the large log.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from preflight.explain.cause import all_causes
from preflight.explain.context import PATTERNS
from preflight.explain.run import signs

BLOCK_BYTES = 8 << 20
MEASURE = """
import resource, sys, time
from preflight.explain.read import explain_paths
start = time.perf_counter()
explanation = explain_paths(sys.argv[1:])
took_s = time.perf_counter() - start
print(took_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, explanation.causes[0].cause)
"""
FAILURE = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/job/train.py", line 88, in <module>\n'
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB\n"
    "[rank0]:[E602 11:17:52.185053341 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=4242, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600091 milliseconds\n"
)


def lines(seed: int) -> Iterator[str]:
    """Yield the lines of an ordinary run, in the mixture in which long jobs write them."""
    rng = random.Random(seed)
    step = 0
    while True:
        step += 1
        kind = rng.random()
        rank = rng.randrange(8)
        if kind < 0.45:
            yield f"{rank}: {{'loss': {rng.random():.4f}, 'grad_norm': {rng.random():.4f}, 'learning_rate': 1e-05, 'epoch': {step / 900:.2f}}}\n"
        elif kind < 0.70:
            yield f"\r {step % 100}%|{'█' * (step % 40)}| {step}/900000 [{step // 60:02d}:{step % 60:02d}<9:59:59, {rng.random():.2f}s/it]"
        elif kind < 0.90:
            yield (
                f"node-{rank}:1234:1300 [{rank}] NCCL INFO comm 0x7f{step:010x} AllGather: 4096 Bytes -> slot {step % 32} "
                f"stream 0x{rng.getrandbits(40):x}\n"
            )
        elif kind < 0.995:
            yield f"[2026-11-21 19:{step // 60 % 60:02d}:{step % 60:02d},{rank}] [INFO] [logging.py:96:log_dist] [Rank {rank}] step={step}, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]\n"
        else:
            yield f"[rank{rank}]:[W602 11:17:52.185053341 Utils.cpp:21] Warning: retry {step} of a data source: ConnectionError: try again\n"


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
        file.write("\n".join(_as_ere(pattern) for pattern in [*(sign.pattern for sign in signs()), *PATTERNS.values()]))
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
        size_mb = path.stat().st_size / 1e6
        took_s, _, cause = min(measure(path) for _ in range(3))
        grep_s = grep(path)
        print(
            f"explain   {size_mb:6.0f} MB in {took_s:6.2f} s = {size_mb / took_s:6.0f} MB/s   ({len(signs())} signs of {len(all_causes())} causes; named {cause})"
        )
        print(f"grep -cE  {size_mb:6.0f} MB in {grep_s:6.2f} s = {size_mb / grep_s:6.0f} MB/s   (the same anchors)")
        write_log(path, int(arguments.gigabytes * 1e9))
        size_mb = path.stat().st_size / 1e6
        took_s, peak_kib, cause = measure(path)
        print(
            f"memory    {size_mb:6.0f} MB log: peak {peak_kib / 1024:.0f} MiB, {size_mb / took_s:.0f} MB/s, named {cause}"
        )


if __name__ == "__main__":
    main()
