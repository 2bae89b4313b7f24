"""Count false rejects of healthy played machines while other processes keep every CPU busy.

A rank that waits for a CPU must not look like a broken node: each answer has to be ready, or unknown with its reason.
Exits 1 where a run rejected, or was unknown without saying why.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
MACHINES = (("rtx4090x2", "0,1"), ("l20x10", "0,1"), ("h100x8", "0-3"))
KINDS = {"quick": (), "standard": ("--profile", "standard"), "accept": ("--accept",)}
RUNS, BUSY = 20, 4
LIMIT_S = 1200.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What one run answered."""

    kind: str
    machine: str
    code: int
    verdict: str  # the node's with --accept, else the job's
    headline: str
    took_s: float

    @property
    def is_false(self) -> bool:
        """Whether it accuses a machine that is healthy, or does not say what it could not find out."""
        return self.code not in (0, 3) or self.verdict in ("not_ready", "reject") or not self.headline


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many processes computing meanwhile."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def answer_of(kind: str, number: int) -> Answer:
    """Run one check on a played machine and return its answer."""
    machine, gpus = MACHINES[number % len(MACHINES)]
    environ = dict(os.environ) | {"PYTHONPATH": os.pathsep.join((str(PROJECT), str(PROJECT / "tests" / "simnccl")))}
    capture = PROJECT / "tests" / "machines" / f"{machine}.json"
    with tempfile.TemporaryDirectory(prefix="preflight-bench-") as folder:
        argv = [
            sys.executable, "-m", "preflight", "check", "--machine", str(capture), "--backend", "simnccl@simnccl",
            "--gpus", gpus, *KINDS[kind],
        ]  # fmt: skip
        since = time.monotonic()
        ran = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, timeout=LIMIT_S, check=False)
        took_s = time.monotonic() - since
        report = json.loads(Path(folder, "preflight-report.json").read_text(encoding="utf-8"))
    verdict = report["node_verdict"] or report["verdict"]
    return Answer(kind, machine, ran.returncode, str(verdict), str(report["headline"]), took_s)


def run_kind(kind: str, runs: int) -> list[Answer]:
    """Return the answers of the runs of one kind, one after the other; each is told at once."""
    answers = []
    for number in range(runs):
        answers.append(answer_of(kind, number))
        sys.stderr.write(f"{answers[-1]}\n")
    return answers


def describe(answers: Sequence[Answer], count: int) -> str:
    """Return the page."""
    lines = [f"under load: {count} busy processes on {len(os.sched_getaffinity(0))} CPUs, healthy played machines"]
    for kind in dict.fromkeys(each.kind for each in answers):
        of_it = [each for each in answers if each.kind == kind]
        verdicts = ", ".join(f"{number} {name}" for name, number in Counter(each.verdict for each in of_it).items())
        false = sum(each.is_false for each in of_it)
        slowest_s = max(each.took_s for each in of_it)
        counted = f"{len(of_it)} runs, {false} false rejects: {verdicts}"
        lines.append(f"  {kind:9} {counted}; the slowest took {slowest_s:.0f} s")
    shown = [each for each in answers if each.code != 0]
    reasons = Counter(f"{each.kind} on {each.machine}, exit {each.code}: {each.headline}" for each in shown)
    lines += [f"    {number} x {reason}" for reason, number in reasons.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=RUNS, help="of each kind")
    parser.add_argument("--busy", type=int, default=BUSY, help="processes that compute meanwhile")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    asked = parser.parse_args()
    with busy(asked.busy), ThreadPoolExecutor(len(asked.kinds)) as pool:  # the kinds load each other too
        found = [each for some in pool.map(lambda kind: run_kind(kind, asked.runs), asked.kinds) for each in some]
    sys.stdout.write(describe(found, asked.busy))
    return 1 if any(each.is_false for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
