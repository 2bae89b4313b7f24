"""Known messages, each with one remedy: the rows of data/signatures.toml, and the versions for which they hold."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources

from preflight.model.toml import read_toml

# How libraries print their own version.
VERSIONS: tuple[tuple[str, str], ...] = (
    ("NCCL", r"NCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)|using nccl==(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)"),
    ("torch", r"(?:torch==|[Pp]y[Tt]orch version:? {1,3}|torch version:? {1,3})(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)"),
    ("vLLM", r"(?:vLLM API server version |LLM engine \(v)(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)"),
)
PRINTED = "|".join(re.sub(r"\((?=\\d)", "(?:", pattern) for _, pattern in VERSIONS)
READERS = tuple((library, re.compile(pattern)) for library, pattern in VERSIONS)


@dataclass(frozen=True, slots=True)
class Signature:
    """A row; `says` is empty if it only adds its remedy to a cause that is named for other reasons."""

    name: str
    pattern: re.Pattern[str]
    remedy: str
    source: str
    line: str
    cause: str
    says: str = ""
    library: str = ""
    since: str = ""
    fixed: str = ""

    def applies_to(self, versions: Mapping[str, str]) -> bool:
        """Return whether the row holds for the library's version in the log; it does if the log tells none."""
        has = versions.get(self.library, "")
        if not has:
            return True
        is_old = bool(self.since) and _numbers(has) < _numbers(self.since)
        is_new = bool(self.fixed) and _numbers(has) >= _numbers(self.fixed)
        return not is_old and not is_new


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """A row whose message is in the log, and its remedy with the log's own values."""

    row: Signature
    remedy: str


@functools.cache
def signatures() -> tuple[Signature, ...]:
    """Return the rows. The file is part of the program, so an invalid row is a defect and raises an exception."""
    text = (resources.files("preflight") / "data" / "signatures.toml").read_text(encoding="utf-8")
    rows = read_toml(text, "signatures.toml")["row"]
    return tuple(Signature(**{**row, "pattern": re.compile(row["pattern"])}) for row in rows)


def read_versions(text: str) -> dict[str, str]:
    """Return the versions that a line prints, by library."""
    found = ((library, pattern.search(text)) for library, pattern in READERS)
    return {library: next(filter(None, match.groups())) for library, match in found if match}


def find(texts: Iterable[str], versions: Mapping[str, str], *, names: bool = False) -> KnownMessage | None:
    """Return the first row whose message is in one of the texts; with `names`, only of rows that have a headline."""
    rows = [row for row in signatures() if row.applies_to(versions) and (row.says or not names)]
    for text in texts:
        for row in rows:
            if match := row.pattern.search(text):
                return KnownMessage(row, _filled(row.remedy, match))
    return None


def _filled(remedy: str, match: re.Match[str]) -> str:
    for number, value in enumerate(match.groups(), 1):
        remedy = remedy.replace(f"{{{number}}}", value or "")
    return remedy


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version))
