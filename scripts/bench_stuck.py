"""How long `preflight stuck` stops a process, beside py-spy alone: the longest gap that a busy process sees in time.

Run as `python -m scripts.bench_stuck [ROUNDS]`. A process reads the clock without a pause; what stops it leaves a gap.
Other load only ever adds to one, so the shortest of several rounds is compared.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from preflight.stuck.collect.python_stacks import find_py_spy

ROUNDS = 5
MOST_RATIO = 1.5
EXPOSED_S = 4.0
# Writes the longest gap since it was last asked, whenever the file to ask by is gone.
VICTIM = """
import os, sys, time
ask, answer = sys.argv[1:]
longest, last = 0.0, time.perf_counter()
while True:
    for _ in range(200):
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    if os.path.exists(ask):
        with open(answer + ".new", "w") as file:
            file.write(repr(longest))
        os.rename(answer + ".new", answer)
        os.unlink(ask)
        longest, last = 0.0, time.perf_counter()
"""


def main(rounds: int = ROUNDS) -> int:
    """Print both ways of taking stacks, each beside py-spy's own; return 1 where one is too long."""
    spy = find_py_spy()
    if spy is None:
        sys.stdout.write("stuck: py-spy is not installed\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        victim = Victim(Path(folder))
        try:
            pairs = {
                "without --native": (["--watch", "1"], [spy, "dump", "--pid", str(victim.pid)]),
                "with --native": (["--watch", "1", "--native"], [spy, "dump", "--native", "--pid", str(victim.pid)]),
            }
            worst = max(_compare(name, victim, ours, theirs, rounds) for name, (ours, theirs) in pairs.items())
        finally:
            victim.end()
    return 1 if worst > MOST_RATIO else 0


class Victim:
    """A process that looks like a rank and never rests."""

    def __init__(self, folder: Path) -> None:
        self._ask, self._answer = folder / "ask", folder / "answer"
        environ = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "bench", "MASTER_PORT": "1"}
        command = [sys.executable, "-c", VICTIM, str(self._ask), str(self._answer)]
        self._process = subprocess.Popen(command, env=environ)
        self.pid = self._process.pid
        self.longest_gap_s()

    def longest_gap_s(self) -> float:
        """Return the longest gap since the last question."""
        self._answer.unlink(missing_ok=True)
        self._ask.touch()
        while not self._answer.exists():
            time.sleep(0.005)
        return float(self._answer.read_text())

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def _compare(name: str, victim: Victim, ours: list[str], theirs: list[str], rounds: int) -> float:
    stuck = [sys.executable, "-m", "preflight", "stuck", "--pid", str(victim.pid), "--json", os.devnull, *ours]
    gaps: dict[str, list[float]] = {"preflight": [], "py-spy": []}
    for _ in range(rounds):
        for who, command in (("preflight", stuck), ("py-spy", theirs)):
            victim.longest_gap_s()
            until = time.monotonic() + EXPOSED_S
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            time.sleep(max(0.0, until - time.monotonic()))  # what else runs here interrupts for as long
            gaps[who].append(victim.longest_gap_s())
    own, other = (min(gaps[who]) for who in ("preflight", "py-spy"))
    sys.stdout.write(f"stuck: longest pause {name}: preflight {own * 1e3:.1f} ms, py-spy {other * 1e3:.1f} ms, "
                     f"{own / other:.2f} times\n")  # fmt: skip
    return own / other


if __name__ == "__main__":
    sys.exit(main(*(int(each) for each in sys.argv[1:2])))
