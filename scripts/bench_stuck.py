"""How long `preflight stuck` stops a process, beside py-spy alone.

Run as `python -m scripts.bench_stuck [ROUNDS]`. A process that never sleeps is on a CPU, waits for one, or is stopped:
what is left of the time beside the first two is the stop. The medians of the rounds are compared; a stop of less than
1 ms can't be told from none.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from preflight.stuck.collect.stacks import find_py_spy

ROUNDS = 9
MOST_RATIO = 1.5
LEAST_S = 1e-3
START_S = 0.5
JOB = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "bench", "MASTER_PORT": "1"}


def main(rounds: int = ROUNDS) -> int:
    """Print both ways of taking stacks, each beside py-spy's own; return 1 where one stops a process for too long."""
    spy = find_py_spy()
    if spy is None:
        sys.stdout.write("stuck: py-spy is not installed\n")
        return 1
    with subprocess.Popen([sys.executable, "-c", "while True: pass"], env=JOB) as victim:
        try:
            time.sleep(START_S)
            pid = str(victim.pid)
            ours = [sys.executable, "-m", "preflight", "stuck", "--pid", pid, "--json", os.devnull, "--watch", "1"]
            theirs = [spy, "dump", "--pid", pid]
            worst = max(
                _compare("without --native", victim.pid, ours, theirs, rounds),
                _compare("with --native", victim.pid, [*ours, "--native"], [*theirs, "--native"], rounds),
            )
        finally:
            victim.kill()
    return 1 if worst > MOST_RATIO else 0


def stopped_s(pid: int) -> float:
    """Return for how long a process that never sleeps was stopped so far, plus a constant, in seconds."""
    cpu_clock = ~pid << 3 | 2  # clock_getcpuclockid(3)
    waited_s = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return time.monotonic() - time.clock_gettime(cpu_clock) - waited_s


def _compare(name: str, pid: int, ours: list[str], theirs: list[str], rounds: int) -> float:
    stops: dict[str, list[float]] = {"preflight": [], "py-spy": []}
    for _ in range(rounds):
        for who, command in (("preflight", ours), ("py-spy", theirs)):
            before_s = stopped_s(pid)
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            stops[who].append(stopped_s(pid) - before_s)
    own, other = (max(LEAST_S, statistics.median(stops[who])) for who in ("preflight", "py-spy"))
    sys.stdout.write(
        f"stuck: a process is stopped {name}: preflight {own * 1e3:.1f} ms, py-spy {other * 1e3:.1f} ms, "
        f"{own / other:.2f} times\n"
    )
    return own / other


if __name__ == "__main__":
    sys.exit(main(*(int(each) for each in sys.argv[1:2])))
