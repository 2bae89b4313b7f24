"""Print which variables, warnings and diagnostic texts came or went between NCCL's releases: `make nccl-news`.

    python -m scripts.nccl_news               the wheels that `make simcuda` fetches, and what the index offers beyond
    python -m scripts.nccl_news FILE FILE     two libraries of your own, the older one first
    python -m scripts.nccl_news --fetch 2.33.1   one more wheel into .simcuda (200 MB)

scripts/nccl_reviewed.toml says which releases were looked at, and what was done for each new name. A name without a row
is printed with `?`; tests/scripts/test_nccl_news.py holds that the releases which CI pins are in that file.
"""

from __future__ import annotations

import argparse
import re
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from preflight.model.known_bugs import version_numbers
from preflight.model.toml import read_toml
from tests.simcuda import places

REVIEWED = Path(__file__).with_name("nccl_reviewed.toml")
WHEEL = "nvidia-nccl-cu12"
BASE = "2.27.5"  # the names of this release and of older ones are not in the file
DONE = ("read", "setting", "prints only", "not for us")  # what can be done for a name; the last with its reason
STRING = re.compile(rb"[\x20-\x7e\n\t]{4,2000}(?=\0)")
VARIABLE = re.compile(r"NCCL_[A-Z][A-Z0-9_]{2,60}")
DIAGNOSTIC = re.compile(r"DIAG|\bRAS\b|[Dd]iagnos|inconsistent|mismatch|outlier")
ALARMING = re.compile(
    r"(?i)fail|error|unable|invalid|cannot|could not|not found|missing|unexpected|timed? ?out|corrupt|abort|unsafe"
)
SHORTEST, SHOWN = 16, 25  # characters of a text; texts of a kind that are printed without --all
ELF_HEADER, SECTION = struct.Struct("<16xHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")


@dataclass(frozen=True, slots=True)
class Strings:
    """The names and texts that a library holds."""

    variables: frozenset[str]
    diagnostics: frozenset[str]
    warnings: frozenset[str]


def read_strings(path: Path) -> Strings:
    """Return what a libnccl prints and reads; the code for GPUs, nearly all of the file, is not looked at."""
    texts = {text for data in read_only(path) for each in STRING.findall(data) for text in [each.decode("ascii")]}
    printed = {" ".join(text.split()) for text in texts if len(text) >= SHORTEST and " " in text}
    diagnostics = {text for text in printed if DIAGNOSTIC.search(text)}
    warnings = {text for text in printed - diagnostics if ALARMING.search(text)}
    return Strings(
        frozenset(text for text in texts if VARIABLE.fullmatch(text)), frozenset(diagnostics), frozenset(warnings)
    )


def read_only(path: Path) -> Iterator[bytes]:
    """Yield the sections of constants of a 64-bit library; ValueError if it is none."""
    with path.open("rb") as file:
        head = file.read(ELF_HEADER.size)
        if head[:5] != b"\x7fELF\x02":
            raise ValueError(f"{path}: no 64-bit ELF file")
        *_, table, _flags, _size, _pentsize, _pnum, entry_bytes, count, names = ELF_HEADER.unpack(head)
        file.seek(table)
        sections = [SECTION.unpack(file.read(entry_bytes)[: SECTION.size]) for _ in range(count)]
        file.seek(sections[names][4])
        words = file.read(sections[names][5])
        for name, _kind, _flag, _address, offset, size_bytes, *_ in sections:
            if words[name : words.index(b"\0", name)].startswith(b".rodata"):
                file.seek(offset)
                yield file.read(size_bytes) + b"\0"


@dataclass(frozen=True, slots=True)
class Review:
    """What was done for the releases that were looked at."""

    versions: dict[str, str]  # with who looked when
    names: dict[str, str]  # a name, or the beginning of names with `*`, and what was done

    @classmethod
    def read(cls) -> Review:
        """Return the file's content."""
        tables = read_toml(REVIEWED.read_text(encoding="utf-8"), REVIEWED.name)
        return cls(tables["version"], tables["name"])

    def done(self, name: str) -> str:
        """Return what was done for a name, "" if nobody looked; a whole name counts before a beginning."""
        if name in self.names:
            return self.names[name]
        begins = [each for each in self.names if each.endswith("*") and name.startswith(each[:-1])]
        return self.names[max(begins, key=len)] if begins else ""


def news(old: Strings, new: Strings, review: Review, most: int) -> Iterator[str]:
    """Yield the lines about what came and went."""
    for name in sorted(new.variables - old.variables):
        yield f"  + {name:44} {review.done(name) or '?'}"
    for name in sorted(old.variables - new.variables):
        yield f"  - {name}"
    for title, before, after in (
        ("diagnostic texts", old.diagnostics, new.diagnostics),
        ("warnings", old.warnings, new.warnings),
    ):
        came, went = sorted(after - before), sorted(before - after)
        yield f"  {title}: {len(came)} came, {len(went)} went"
        yield from (f"    + {text[:150]}" for text in came[:most])
        yield from (f"    - {text[:150]}" for text in went[:most])


def unreviewed(strings: Iterable[Strings], review: Review) -> tuple[str, ...]:
    """Return the names that came with a release and for which the file says nothing."""
    first, *others = strings
    came = {name for each in others for name in each.variables} - first.variables
    return tuple(sorted(name for name in came if not review.done(name)))


def fetched() -> dict[str, Path]:
    """Return the libraries below .simcuda from BASE on, by version, the oldest first."""
    found = {path.parents[3].name: path for path in places.root().glob("nccl/*/nvidia/nccl/lib/libnccl.so.2")}
    kept = (one for one in found.items() if version_numbers(one[0]) >= version_numbers(BASE))
    return dict(sorted(kept, key=lambda one: version_numbers(one[0])))


def fetch(version: str) -> None:
    """Unpack one more wheel next to those of `make simcuda`."""
    folder = places.root() / "nccl" / version
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    subprocess.run([*command, f"{WHEEL}=={version}"], check=True)


def offered() -> tuple[str, ...]:
    """Return the releases that the index offers; () where it does not answer."""
    asked = [sys.executable, "-m", "pip", "index", "versions", WHEEL]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    match = re.search(r"Available versions: (.*)", ran.stdout)
    return tuple(match[1].split(", ")) if match else ()


def main() -> int:
    """Print the news; return 1 if a name has no row, or a fetched release is not in the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("libraries", nargs="*", type=Path, help="two libnccl.so.2, the older one first")
    parser.add_argument("--fetch", metavar="VERSION", help="fetch one more wheel first")
    parser.add_argument("--all", action="store_true", help="print every text")
    asked = parser.parse_args()
    if asked.fetch:
        fetch(asked.fetch)
    review, most = Review.read(), sys.maxsize if asked.all else SHOWN
    libraries = {str(path): path for path in asked.libraries} or fetched()
    read = {version: read_strings(path) for version, path in libraries.items()}
    versions = list(read)
    said = []
    for before, after in pairwise(versions):
        said += [f"{before} -> {after}", *news(read[before], read[after], review, most)]
    lacking = unreviewed(read.values(), review) if read else ()
    new = [] if asked.libraries else [each for each in versions if each not in review.versions]
    if not asked.libraries:
        newest = max(map(version_numbers, review.versions))
        beyond = [each for each in offered() if version_numbers(each) > newest]
        said += [f"the index offers beyond the reviewed ones: {', '.join(beyond) or 'none, or it does not answer'}"]
    if lacking or new:
        said += [f"without a row in {REVIEWED.name}: {', '.join([*new, *lacking])}"]
    sys.stdout.write("\n".join([*said, ""]))
    return 1 if lacking or new else 0


if __name__ == "__main__":
    sys.exit(main())
