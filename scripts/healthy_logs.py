"""How often `preflight explain` names a cause of runs that went well: logs drawn from published results.

    python -m scripts.healthy_logs [--draw 150] [--seed 1] [--hide cut|lines] [--match REGEX] PLACE...

A place is a folder, or a bare git repository such as a mirror of github.com/mlcommons/training_results_v5.0. Of the
files whose path matches (MLPerf's own names) some are drawn at random, spread over submitters (the path's first part)
and benchmarks (the file's folder): no group has a second one before each has its first.

The success is hidden, since with it every answer is "healthy": every line with `run_stop` or what explain takes for
a success is taken out, and with `cut` also what follows the last `run_stop`, or the first success where it has none.
What follows may be a true failure (a job that doesn't exit hits its time limit), so each alarm is to be read.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from preflight.explain.explain_logs import Log, explain
from preflight.explain.run_ends import RUN_ENDS, SUCCESS
from preflight.explain.structured_lines import plain_lines

MLPERF = r"/results/.*/result_\d+\.txt$"
RUN_STOP = re.compile(rb'"run_stop"')
SUCCEEDED = re.compile(RUN_ENDS[SUCCESS].encode())
Read = Callable[[], bytes]


def places(place: Path) -> dict[str, Read]:
    """Return what reads each file of a folder or of a bare git repository, by its path there."""
    if not (place / "HEAD").is_file():
        files = (path for path in sorted(place.rglob("*")) if path.is_file())
        return {str(path.relative_to(place)): path.read_bytes for path in files}

    def git(*args: str) -> bytes:
        environ = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}  # what a mirror lacks is not asked for
        return subprocess.run(("git", "-C", str(place), *args), env=environ, check=True, capture_output=True).stdout

    def reads(line: str) -> tuple[str, Read]:
        about, _, name = line.partition("\t")
        return name, lambda: git("cat-file", "blob", about.split()[2])

    # The size of a file that a mirror lacks is "-".
    listed = git("ls-tree", "-r", "-l", "-z", "HEAD").decode("utf-8", "replace").split("\0")
    return dict(reads(line) for line in listed if re.match(r"\S+ blob \S+ +\d", line))


def draw(names: Sequence[str], count: int, seed: int) -> list[str]:
    """Return so many names at random, the same for the same seed, spread over submitters and benchmarks."""
    shuffled = sorted(names)
    random.Random(seed).shuffle(shuffled)
    seen: Counter[tuple[str, ...]] = Counter()
    turns = []
    for name in shuffled:
        group = (name.split("/")[0], *name.split("/")[-2:-1])
        seen[group] += 1
        turns.append((seen[group], name))
    return [name for _, name in sorted(turns, key=lambda turn: turn[0])[:count]]


def hidden(log: bytes, how: str) -> bytes:
    """Return a log without what says that it ended well."""
    lines = log.splitlines(keepends=True)
    stops = [n for n, line in enumerate(lines) if RUN_STOP.search(line)]
    said = [n for n, line in enumerate(lines) if SUCCEEDED.search(line)]
    end = (stops[-1:] or said[:1] or [len(lines)])[0] if how == "cut" else len(lines)
    gone = {*stops, *said}
    return b"".join(line for n, line in enumerate(lines[:end]) if n not in gone)


def main(argv: Sequence[str] | None = None) -> None:
    """Draw, hide, explain and count; an alarm is a cause named of a run that went well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--draw", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hide", choices=("cut", "lines"), default="lines")
    parser.add_argument("--match", type=re.compile, default=re.compile(MLPERF))
    asked = parser.parse_args(argv)
    for place in asked.places:
        reads = {name: read for name, read in places(place).items() if asked.match.search(f"/{name}")}
        drawn = draw(list(reads), asked.draw, asked.seed)
        said: Counter[str] = Counter()
        for name in drawn:
            answer = explain([Log(name, plain_lines([hidden(reads[name](), asked.hide)]))])
            said[answer.verdict.value] += 1
            for cause in answer.causes[:1]:
                quoted = cause.evidence[0].text[:160]
                sys.stdout.write(f"  {name}: {cause.cause} ({cause.confidence.value}): {quoted}\n")
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(said.items()))
        sys.stdout.write(f"{place}: {said['cause_named']} alarms in {len(drawn)} of {len(reads)} logs: {verdicts}\n")


if __name__ == "__main__":
    main()
