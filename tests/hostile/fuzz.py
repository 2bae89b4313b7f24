"""`make fuzz MINUTES=n`: mutate good input for every parser; each call returns or raises our error, within bounds.

    python -m tests.hostile.fuzz [--minutes 1] [--mutations N] [--seed S]

What fails is kept in tests/hostile/corpus/PARSER/, which later runs try first. Exit code 1 where something failed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import random
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from preflight.errors import PreflightError
from tests.hostile.targets import Target, targets

CORPUS = Path(__file__).parent / "corpus"
MOST_S = 5.0
MOST_MB = 500
A_TURN, TURN_S = 200, 1.0  # what one parser gets before the next: most of the time goes to the slow ones
TOKENS = (
    b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", b'"\\udc00"', b"9" * 5000, b"-1", b"1e999", b"NaN", b"null",
    b"[", b"{", b"]", b"}", b'"', b",", b":", b"\n", b"\t", b"0-99999999", b"n[1-999999999]", b"\x1b[3m",
    "²".encode(), "٣".encode(),
    b"true", b"[[[[[[", b'{"a":', b"\x80\x02", b"\x8a\xff", b"\r", b"%s", b"$(id)", b"  ", b"=", b"GPU9999", b"NV99",
)  # fmt: skip


# What no JSON reader expects in the place of something else.
ODD: tuple[object, ...] = (
    None, True, 0, -1, 2**31, 2**70, 10**400, 1e300, -0.5, "", "x" * 3000, "\ud800", "²", "nan", "a,b\n[1-9]", [], {},
    [[]] * 3, {"a": None}, [{}],
)  # fmt: skip


def mutate(data: bytes, other: bytes, random_: random.Random) -> bytes:
    """Return the data after a few changes: half of those to a JSON document leave it one."""
    if data[:1] in (b"{", b"[") and random_.random() < 0.5:
        with contextlib.suppress(ValueError):
            return _with_odd_values(data, random_)
    return _with_odd_bytes(data, other, random_)


def _with_odd_values(data: bytes, random_: random.Random) -> bytes:
    document = json.loads(data)
    for _ in range(random_.randint(1, 4)):
        inner, place = document, None
        while isinstance(inner, (dict, list)) and inner and (place is None or random_.random() < 0.85):
            holder = inner
            place = random_.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            inner = holder[place]
        if place is None:
            break
        match random_.randrange(4):
            case 0:
                del holder[place]
            case 1 if isinstance(holder, dict):
                holder[random_.choice(("", "\ud800", "x" * 300, "gaps", "\n"))] = holder.pop(place)
            case 2 if isinstance(holder, list):
                holder[place:place] = [inner] * random_.choice((1, 2, 50))
            case _:
                holder[place] = random_.choice(ODD)
    return json.dumps(document).encode()


def _with_odd_bytes(data: bytes, other: bytes, random_: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(random_.randint(1, 6)):
        at = random_.randrange(len(made) + 1)
        end = min(len(made), at + random_.choice((1, 1, 2, 8, 64, 1000)))
        match random_.randrange(7):
            case 0 if made:
                made[at % len(made)] ^= 1 << random_.randrange(8)
            case 1:
                del made[at:end]
            case 2:
                made[at:at] = made[at:end] * random_.choice((1, 2, 50))
            case 3:
                made[at:end] = random_.choice(TOKENS)
            case 4:
                made[at:at] = random_.choice(TOKENS)
            case 5:
                cut = random_.randrange(len(other) + 1)
                made[at:] = other[cut : cut + 20_000]
            case _:
                made[at:end] = bytes(random_.randrange(256) for _ in range(min(8, end - at)))
    return bytes(made[: 1 << 20])


def trouble_of(target: Target, data: bytes) -> str:
    """Return what is wrong with how a parser took it, "" where nothing is."""
    started = time.process_time()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            target.parse(data)
    except PreflightError:
        pass
    except Exception as error:  # noqa: BLE001  that is what is looked for
        return f"{type(error).__name__}: {str(error)[:120]}"
    took_s = time.process_time() - started
    return f"took {took_s:.1f} s" if took_s > MOST_S else ""


def kept(target: Target) -> Iterator[bytes]:
    """Yield what failed once."""
    for path in sorted((CORPUS / target.name).glob("*")):
        yield path.read_bytes()


def keep(target: Target, data: bytes) -> Path:
    """Keep an input that failed."""
    folder = CORPUS / target.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Fuzz, print what was done per parser, and tell whether anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--mutations", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    asked = parser.parse_args()
    say(f"seed {asked.seed}")
    random_, until = random.Random(asked.seed), time.monotonic() + 60 * asked.minutes
    found: dict[str, Path] = {}
    done: dict[str, int] = {}
    all_targets = targets()
    for target in all_targets:
        for data in (*target.seeds, *kept(target)):
            if why := trouble_of(target, data):
                found.setdefault(f"{target.name}: {why}", keep(target, data))
    while time.monotonic() < until and sum(done.values()) < asked.mutations:
        for target in all_targets:
            turn_ends = time.monotonic() + TURN_S
            for _ in range(A_TURN):
                data = mutate(random_.choice(target.seeds), random_.choice(target.seeds), random_)
                done[target.name] = done.get(target.name, 0) + 1
                if why := trouble_of(target, data):
                    found.setdefault(f"{target.name}: {why}", keep(target, data))
                if time.monotonic() > turn_ends:
                    break
    most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    say(", ".join(f"{name} {count}" for name, count in done.items()))
    say(f"{sum(done.values())} mutations, {len(found)} failures, at most {most_mb} MB")
    for why, path in found.items():
        say(f"  {why}: kept as {path}")
    return int(bool(found) or most_mb > MOST_MB)


if __name__ == "__main__":
    sys.exit(main())
