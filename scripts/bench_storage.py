"""Measure a directory with preflight's storage probe and with fio, in pairs that write and read in the same way.

Both write one file of the same size in blocks of 4 MiB with O_DIRECT, one at a time, fsync it, and read it back. The
two take turns at going first. Where fio differs from itself by more than preflight may from it, another round is run.
Exits 1 where the median ratio is off by more than 30%, 3 where there is no fio.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from preflight.facts.storage import file_size_bytes, measure_storage
from preflight.model.gap import Gap
from preflight.system.storage_file import BLOCK_BYTES

PAIRS = 7
ROUNDS = 3
MOST_OFF = 0.3
BUDGET_S = 60.0  # enough for the whole file: nothing is cut short
FILE_BYTES = 256 << 20  # so short that what else uses the disk falls on both of a pair
FIO = (
    "--name=x", "--output-format=json", "--ioengine=psync", "--iodepth=1", "--numjobs=1", "--thread=0",
    f"--bs={BLOCK_BYTES}", "--fallocate=none",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Speed:
    """What one side measured, in bytes per second."""

    write: float
    read: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Both sides, one right after the other."""

    ours: Speed
    fio: Speed


def ratios(pairs: Sequence[Pair], step: str) -> list[float]:
    """Return ours over fio's, pair by pair; `step` is write or read."""
    return [getattr(pair.ours, step) / getattr(pair.fio, step) for pair in pairs]


def is_noisy(pairs: Sequence[Pair]) -> bool:
    """Tell whether the middle half of fio's own figures lies further apart than preflight may be off."""
    if len(pairs) < 2:
        return False
    quarters = [statistics.quantiles([getattr(pair.fio, step) for pair in pairs], n=4) for step in ("write", "read")]
    return any(high > (1 + MOST_OFF) * low for low, _, high in quarters)


def keeps_promise(pairs: Sequence[Pair]) -> bool:
    """Tell whether both medians are within what preflight promises."""
    return all(abs(statistics.median(ratios(pairs, step)) - 1) <= MOST_OFF for step in ("write", "read"))


def describe(pairs: Sequence[Pair], directory: str, file_bytes: int, is_direct: bool) -> str:
    """Return the page."""
    how = "O_DIRECT" if is_direct else "fsync and a cache that is told to forget"
    lines = [f"storage: {len(pairs)} pairs in {directory}, {file_bytes >> 20} MiB a file, {how}"]
    for step in ("write", "read"):
        ours, fio = (
            statistics.median(getattr(getattr(pair, side), step) for pair in pairs) for side in ("ours", "fio")
        )
        lines += [
            f"  {step:<5} preflight {ours / 1e9:6.2f} GB/s, fio {fio / 1e9:6.2f} GB/s (medians)",
            f"        ratio {statistics.median(ratios(pairs, step)):.2f} (median; 1 +- {MOST_OFF}); "
            f"pair by pair {' '.join(f'{ratio:.2f}' for ratio in ratios(pairs, step))}",
        ]
    lines += ["  what else uses this storage makes fio differ from itself by more than that"] if is_noisy(pairs) else []
    return "\n".join(lines) + "\n"


def run_ours(directory: str) -> tuple[Speed, bool]:
    """Return what the probe measured with one writer, and whether with O_DIRECT."""
    speed = measure_storage(directory, 1, BUDGET_S, most_bytes=FILE_BYTES)
    write, read = speed.write_one_bytes_per_s, speed.read_one_bytes_per_s
    for value in (write, read, speed.is_direct):
        if isinstance(value, Gap):
            raise SystemExit(f"{directory}: {value.reason}")
    return Speed(float(write), float(read)), bool(speed.is_direct)  # type: ignore[arg-type]  # no Gap is left


def run_fio(directory: str, file_bytes: int, is_direct: bool) -> Speed:
    """Return what fio measured on a file of its own."""
    path = os.path.join(directory, "fio")
    common = [*FIO, f"--filename={path}", f"--size={file_bytes}", f"--direct={int(is_direct)}"]
    try:
        return Speed(_fio("write", [*common, "--end_fsync=1"]), _fio("read", [*common, "--invalidate=1"]))
    finally:
        os.unlink(path)


def _fio(step: str, arguments: Sequence[str]) -> float:
    ran = subprocess.run(["fio", f"--rw={step}", *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"fio ended with exit code {ran.returncode}: {ran.stderr}")
    return float(json.loads(ran.stdout)["jobs"][0][step]["bw_bytes"])


def run_pairs(folder: str, count: int, file_bytes: int, is_direct: bool) -> list[Pair]:
    """Run both sides `count` times, in turns beginning with either."""
    pairs = []
    for number in range(count):
        if number % 2:
            fio = run_fio(folder, file_bytes, is_direct)
            pairs.append(Pair(run_ours(folder)[0], fio))
        else:
            ours, _ = run_ours(folder)
            pairs.append(Pair(ours, run_fio(folder, file_bytes, is_direct)))
    return pairs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--directory", help="on the storage to measure; default: the temporary directory")
    asked = parser.parse_args()
    if not shutil.which("fio"):
        sys.stdout.write("storage: not measured, there is no fio (Debian: apt-get install fio)\n")
        return 3
    with tempfile.TemporaryDirectory(prefix="preflight-bench-", dir=asked.directory) as folder:
        free = os.statvfs(folder)
        file_bytes = min(FILE_BYTES, file_size_bytes(free.f_bavail * free.f_frsize, 1))
        _, is_direct = run_ours(folder)  # the first of all pays for what is cold
        for _ in range(asked.rounds):
            pairs = run_pairs(folder, asked.pairs, file_bytes, is_direct)
            sys.stdout.write(describe(pairs, os.path.dirname(folder), file_bytes, is_direct))
            if keeps_promise(pairs) or not is_noisy(pairs):
                break
    return 0 if keeps_promise(pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
