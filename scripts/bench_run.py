"""What `preflight run` costs a job: wall clock and CPU time beside the job alone, in pairs.

Run as `python -m scripts.bench_run [PAIRS] [STEPS] [STEP_S]`. The job is a torchrun of two ranks on gloo that computes,
reduces and prints in each step; STEP_S is how long a step computes, about, by a number of products that is measured
first: both sides then do the same work. By itself a step is as short as it can be, which is the hardest case.
The two sides take turns at going first; `run` uses an earlier report again, so that no check is in its time
(bench_overhead has that). Exits 1 where what stays beside the job takes more than its share of the CPU.
"""

from __future__ import annotations

import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.bare_torchrun import LIMIT_S, environment, timed_s

PAIRS, STEPS = 20, 60
FEWEST_PRODUCTS, MEASURED_PRODUCTS, MEASURED_STEPS = 8, 408, 10  # of a step
LOOK_S = 0.005
MOST_SHARE = 0.01  # of the job's CPU time
CONFIDENCE = 0.95
JOB = """\
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weights = torch.ones(400, 400)
for step in range(int(sys.argv[1])):
    for _ in range(int(sys.argv[2])):
        weights = weights @ weights / 400
    dist.all_reduce(weights)
    weights /= dist.get_world_size()
    print(f"step {step} loss {float(weights.mean()):.3f}", flush=True)
dist.destroy_process_group()
"""
RUN = (sys.executable, "-m", "preflight", "run", "--backend", "gloo", "--reuse", "1h", "--")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took: the whole, how long until the job started, and what `run` itself took of the CPU.

    Its start with the processes that read the machine; beside the job what some ms of a shell and of a fork take
    counts as the job's.
    """

    wall_s: float
    job_cpu_s: float
    before_s: float = 0.0
    before_cpu_s: float = 0.0
    beside_cpu_s: float = 0.0

    @property
    def cpu_s(self) -> float:
        """Of all processes."""
        return self.job_cpu_s + self.before_cpu_s + self.beside_cpu_s


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return a distribution-free interval of the median, with at least 95% confidence where there are six or more."""
    ordered, count = sorted(differences), len(differences)
    cut, tail = 0, 0.5**count
    while cut + 1 < count - cut - 1 and 1 - 2 * (tail + math.comb(count, cut + 1) / 2**count) >= CONFIDENCE:
        cut += 1
        tail += math.comb(count, cut) / 2**count
    return ordered[cut], ordered[-1 - cut]


def describe(pairs: Sequence[tuple[Cost, Cost]], steps: int) -> str:
    """Return the page; each pair is the job alone, then under `preflight run`."""
    alone_s, under_s = (statistics.median(pair[side].wall_s for pair in pairs) for side in (0, 1))
    more, beside = (
        [under.wall_s - under.before_s * share - alone.wall_s for alone, under in pairs] for share in (0, 1)
    )
    more_cpu = [under.cpu_s - alone.cpu_s for alone, under in pairs]
    alone_cpu_s = statistics.median(alone.cpu_s for alone, _ in pairs)
    job_s, before_s, beside_s = (
        statistics.median(getattr(under, name) for _, under in pairs)
        for name in ("job_cpu_s", "before_cpu_s", "beside_cpu_s")
    )
    both = (before_s + beside_s) / job_s
    return (
        f"run: {len(pairs)} pairs, a job of {steps} steps, 2 ranks, gloo\n"
        f"  torchrun alone              {alone_s:7.3f} s (median)\n"
        f"  preflight run -- torchrun   {under_s:7.3f} s (median), with a report of before\n"
        f"  difference, pair by pair    {_spread(more)}, {statistics.median(more) / alone_s:+.1%}\n"
        f"  once the job has started    {_spread(beside)}, {statistics.median(beside) / alone_s:+.1%}\n"
        f"  CPU time of all processes   {_spread(more_cpu)}, {statistics.median(more_cpu) / alone_cpu_s:+.1%}\n"
        f"  CPU time: the job {job_s:.2f} s; preflight run {before_s:.3f} s until it starts and {beside_s:.3f} s "
        "beside it\n"
        f"  its share: beside the job {beside_s / job_s:.2%} (at most {MOST_SHARE:.0%}); with its start {both:.2%}, "
        f"which is {'within' if both <= MOST_SHARE else 'above'} {MOST_SHARE:.0%}:\n"
        f"  both together are at most {MOST_SHARE:.0%} of a job of {(before_s + beside_s) / MOST_SHARE:.0f} s of "
        "CPU time and more\n"
    )


def _spread(seconds: Sequence[float]) -> str:
    low_s, high_s = interval(seconds)
    return f"{statistics.median(seconds):+7.3f} s (median; 95% interval {low_s:+.3f} to {high_s:+.3f})"


def keeps_promise(pairs: Sequence[tuple[Cost, Cost]]) -> bool:
    """Tell whether what stays beside the job takes no more than its share."""
    return statistics.median(under.beside_cpu_s / under.job_cpu_s for _, under in pairs) <= MOST_SHARE


def cost_of(argv: Sequence[str], environ: Mapping[str, str], folder: str) -> Cost:
    """Run a command and return what it took; SystemExit where it fails.

    `preflight run` renames itself once it has the job to start: what its process took until then, and after.
    """
    since, before_s, before_cpu_s, waited_s = time.monotonic(), 0.0, 0.0, 0.0
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            argv, env=environ, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        )
        ended, name, clock = select.poll(), Path(f"/proc/{process.pid}/comm"), ~process.pid << 3 | 2
        ended.register(os.pidfd_open(process.pid), select.POLLIN)
        is_run = tuple(argv[: len(RUN)]) == RUN
        look_s = LOOK_S if is_run else LIMIT_S
        while not ended.poll(look_s * 1000):
            if name.read_text() == "preflight-run\n":
                look_s = LIMIT_S  # nothing more to see: to look takes CPU time, too
                continue
            before_s = time.monotonic() - since
            before_cpu_s = time.clock_gettime(clock)  # clock_getcpuclockid(3): all threads of that process
            waited_s = _waited_s(process.pid)
        wall_s = time.monotonic() - since
        own_s = time.clock_gettime(clock)  # it has ended, and is not reaped yet
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}:\n{errors.read().decode()}")
    cpu_s = used.ru_utime + used.ru_stime
    if not is_run:
        return Cost(wall_s, cpu_s)
    return Cost(wall_s, cpu_s - own_s - waited_s, before_s, before_cpu_s + waited_s, own_s - before_cpu_s)


def _waited_s(pid: int) -> float:
    """Return the CPU time of a process's children that it has waited for: cutime and cstime, proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def main(count: int = PAIRS, steps: int = STEPS, step_s: float = 0.0) -> int:
    """Print the page; return 1 where the promise is missed."""
    pairs: list[tuple[Cost, Cost]] = []
    with tempfile.TemporaryDirectory(prefix="preflight-bench-") as folder:
        script = Path(folder) / "job.py"
        script.write_text(JOB, encoding="utf-8")
        options = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--nproc-per-node", "2")
        torchrun = (sys.executable, "-m", "torch.distributed.run", *options, str(script))
        environ = environment(os.environ, folder)
        job = (*torchrun, str(steps), str(_products(torchrun, step_s, environ, folder)))
        timed_s([*RUN, *job], environ, folder)  # leaves the report, and warms both sides
        for number in range(count):
            sides = [job, (*RUN, *job)]
            costs = [cost_of(sides[(side + number) % 2], environ, folder) for side in (0, 1)]
            pairs.append((costs[number % 2], costs[1 - number % 2]))
    sys.stdout.write(describe(pairs, steps))
    return 0 if keeps_promise(pairs) else 1


def _products(torchrun: Sequence[str], step_s: float, environ: Mapping[str, str], folder: str) -> int:
    """Return of how many products a step of that length consists, about."""
    if not step_s:
        return FEWEST_PRODUCTS
    few_s, many_s = (
        timed_s([*torchrun, str(MEASURED_STEPS), str(products)], environ, folder)
        for products in (FEWEST_PRODUCTS, MEASURED_PRODUCTS)
    )
    each_s = (many_s - few_s) / MEASURED_STEPS / (MEASURED_PRODUCTS - FEWEST_PRODUCTS)
    return max(FEWEST_PRODUCTS, round(step_s / each_s))


if __name__ == "__main__":
    given = sys.argv[1:4]
    sys.exit(main(*(int(each) for each in given[:2]), *(float(each) for each in given[2:])))
