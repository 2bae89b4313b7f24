"""How often `preflight run` would look at jobs that went well: the silences of published logs, replayed.

    python -m scripts.replay_silences [--draw 300] [--seed 1] [--after 300] [--match REGEX] PLACE...

A place is a folder, or a bare git repository such as a mirror of github.com/mlcommons/submissions_algorithms, whose
logs have all that a job printed. The times are those of absl's log lines and of MLPerf's (`time_ms`). Lines without a
time count as no output, and nothing is known of the files that the job read: so a real job is silent less often than
its replay.

A look is no page. `run` prints a page only if `preflight stuck` then finds in the ranks' stacks that the job is stuck,
and no log tells that. So the figures here are upper bounds.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from preflight.job.movement import Look, Movement
from scripts.healthy_logs import MLPERF, draw, places

TIME_MS = re.compile(rb'"time_ms": (\d{13})\b')
ABSL = re.compile(rb"[IWE](\d\d)(\d\d) (\d\d):(\d\d):(\d\d\.\d{1,6}) ")
LOGS = rf"{MLPERF}|/logs/.*\.log$"
LEAST_BYTES = 2000  # below: no log, but a pointer to one
NO_PROCESS = -1  # whose files nobody has read


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one log showed: how long the job took, and the silences in which `run` would have looked."""

    hours: float
    due: int  # silences with a look after `--stuck-after`
    early: int  # silences with a look only because the job had never been silent for so long


def replay(log: bytes, after_s: float) -> Replayed:
    """Replay the times of a log. No look finds the job stuck, and none sees it move."""
    times = sorted(_times(log))
    if len(times) < 2:
        return Replayed(0.0, 0, 0)
    now_s, written = times[0], 0
    movement = Movement(after_s, lambda: written, NO_PROCESS, clock=lambda: now_s)
    due = early = 0
    for time_s in times[1:]:
        looks: set[Look] = set()
        while now_s + movement.look_s < time_s:
            now_s += movement.look_s
            look = movement.look()
            looks.add(look)
            if look is Look.EARLY:
                movement.found_nothing()
            if look is Look.DUE:
                movement.look_later()
        due += Look.DUE in looks
        early += Look.EARLY in looks and Look.DUE not in looks
        now_s, written = time_s, written + 1
        movement.look()
    return Replayed((times[-1] - times[0]) / 3600, due, early)


def _times(log: bytes) -> Iterator[float]:
    """Yield the seconds of each line that has a time; absl's has no year, and none of these jobs took a month."""
    for line in log.splitlines():
        if stamp := ABSL.match(line):
            month, day, hour, minute = (int(part) for part in stamp.groups()[:4])
            yield ((month * 31 + day) * 24 + hour) * 3600 + minute * 60 + float(stamp[5])
        elif found := TIME_MS.search(line):
            yield int(found[1]) / 1000


def main(argv: Sequence[str] | None = None) -> None:
    """Draw, replay and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--draw", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--after", type=float, default=300.0, help="seconds of --stuck-after")
    parser.add_argument("--match", type=re.compile, default=re.compile(LOGS))
    asked = parser.parse_args(argv)
    for place in asked.places:
        reads = {name: read for name, read in places(place).items() if asked.match.search(f"/{name}")}
        logs = (reads[name]() for name in draw(list(reads), asked.draw, asked.seed))
        found = [each for log in logs if len(log) >= LEAST_BYTES and (each := replay(log, asked.after)).hours]
        hours = sum(each.hours for each in found) or 1.0
        due, early = sum(each.due for each in found), sum(each.early for each in found)
        sys.stdout.write(
            f"{place}: {len(found)} jobs, {hours:.0f} hours: {due} silences with a look ({1000 * due / hours:.1f} in "
            f"1,000 hours), {early} with an early look only\n"
        )


if __name__ == "__main__":
    main()
