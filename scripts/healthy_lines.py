"""Write the background of healthy runs for `preflight explain`: hashes of the lines' forms and words, and no text.

    python -m scripts.healthy_lines [--draw 150] [--seed 1] [--match REGEX] [--most 200000] [--onto FILE]
        --out FILE PLACE...

A place is a folder or a bare git repository, as for scripts.healthy_logs. Give only logs of runs that went well. Of a
git repository, some MLPerf results are drawn. A labeled corpus gives the words of the logs that its JSON files call
healthy, and no forms: such logs are made to look alarming. Only lines with a word of failure have a form. Forms in
several logs come first if the file would be larger than --most bytes. `--onto` adds to an earlier background.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from preflight.explain.structured_lines import plain_lines
from preflight.explain.unusual_lines import FAILURES, HASH_BYTES, form_of, packed, unpacked, words_of
from scripts.healthy_logs import MLPERF, draw, places

MOST_LINES = 20_000  # of one log


def logs(place: Path, count: int, seed: int, match: re.Pattern[str]) -> Iterator[tuple[bytes, bool]]:
    """Yield the healthy logs of a place, and whether they are real ones."""
    labels = {path.with_suffix(".log"): json.loads(path.read_text()) for path in place.glob("*.json")}
    if labels:
        healthy = sorted(log for log, about in labels.items() if about.get("label") == "healthy" and log.exists())
        yield from ((log.read_bytes(), False) for log in healthy)
        return
    reads = places(place)
    if (place / "HEAD").is_file():
        reads = {name: reads[name] for name in draw([n for n in reads if match.search(f"/{n}")], count, seed)}
    yield from ((read(), True) for read in reads.values())


def main(argv: Sequence[str] | None = None) -> None:
    """Read all places and write one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--draw", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--match", type=re.compile, default=re.compile(MLPERF))
    parser.add_argument("--most", type=int, default=200_000)
    parser.add_argument("--onto", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(argv)
    forms: Counter[str] = Counter()
    words: Counter[str] = Counter()
    read = 0
    for place in asked.places:
        for log, is_real in logs(place, asked.draw, asked.seed, asked.match):
            read += 1
            text = b"".join(plain_lines([log])).decode("utf-8", "replace")
            lines = re.split(r"[\r\n]+", text)[:MOST_LINES]
            words.update({word for line in lines for word in words_of(line) if len(word) > 2})
            if is_real:
                forms.update({form_of(words_of(line)) for line in lines if FAILURES.search(line)} - {""})
    most = asked.most // HASH_BYTES - len(words)
    earlier = unpacked(asked.onto.read_bytes()) if asked.onto else None
    data = packed((form for form, _ in forms.most_common(max(0, most))), words, earlier)
    asked.out.write_bytes(data)
    sys.stdout.write(f"{asked.out}: {read} logs, {len(forms)} forms, {len(words)} words, {len(data)} bytes\n")


if __name__ == "__main__":
    main()
