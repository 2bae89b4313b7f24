"""Known log messages and their remedies, from data/signatures.toml and data/known_bugs.toml.

Both files state the versions to which a message applies.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources

from preflight.model.known_bugs import KnownBug, Surroundings, version_numbers
from preflight.model.toml import read_toml
from preflight.system.known_bugs import load_known_bugs

# How libraries print their own version.
VERSIONS: tuple[tuple[str, str], ...] = (
    ("NCCL", r"NCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)|using nccl==(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)"),
    ("torch", r"(?:torch==|[Pp]y[Tt]orch version:? {1,3}|torch version:? {1,3})(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)"),
    ("aws-ofi-nccl", r"aws-ofi-nccl(?:==| )v?(\d{1,3}\.\d{1,3}\.\d{1,3})"),
    ("flashinfer", r"flashinfer(?:-python|_python)?(?:==| version:? )(\d{1,3}\.\d{1,3}\.\d{1,3})"),
    ("driver", r"[Dd]river [Vv]ersion: {1,3}(\d{3}\.\d{1,3}(?:\.\d{1,3})?)"),
    ("vLLM", r"(?:vLLM API server version |LLM engine \(v)(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)"),
)
PRINTED = "|".join(re.sub(r"\((?=\\d)", "(?:", pattern) for _, pattern in VERSIONS)
READERS = tuple((library, re.compile(pattern)) for library, pattern in VERSIONS)


@dataclass(frozen=True, slots=True)
class Signature:
    """A known log message, with its remedy and the headline for the user (`says`).

    A message without a headline only adds its remedy to a cause that other log lines show.
    """

    name: str
    pattern: re.Pattern[str]
    remedy: str
    source: str
    line: str
    cause: str
    says: str = ""
    verdict: str = ""  # for a cause that other lines name: its first sentence, with {who} and {host}
    library: str = ""
    since: str = ""
    fixed: str = ""
    bug: KnownBug | None = None  # the row of known_bugs.toml, if it is one

    @classmethod
    def of(cls, bug: KnownBug) -> Signature:
        """Return the known message (`Signature`) for the log line that a known bug prints."""
        says = bug.says if bug.headline else ""
        return cls(
            bug.id, re.compile(bug.line), bug.do, bug.address, bug.proof, bug.cause, says, "", bug.component, bug.first,
            bug.fixed, bug,
        )  # fmt: skip

    def applies_to(self, versions: Mapping[str, str], around: Surroundings | None) -> bool:
        """Return whether the message applies to the library versions and to the machine that the log shows.

        `versions` has the library versions, and `around` has the machine. A message is not excluded if the version of
        its library is unknown.
        """
        # Some bugs exist only on one kind of machine, but other faults print the same line. For a bug of this kind, the
        # log must show that kind of machine.
        if self.bug is not None and self.bug.is_told_by_machine and not self.bug.is_of_machine(around):
            return False
        has = versions.get(self.library, "")
        if not has:
            return True
        if self.bug is not None:
            return self.bug.has(has)
        is_old = bool(self.since) and version_numbers(has) < version_numbers(self.since)
        is_new = bool(self.fixed) and version_numbers(has) >= version_numbers(self.fixed)
        return not is_old and not is_new


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """A known message that was found in the log, with the values from the log in its texts."""

    row: Signature
    match: re.Match[str]

    @property
    def remedy(self) -> str:
        """The remedy, whose values are quoted for a shell."""
        return filled(self.row.remedy, self.match, quote=True)

    @property
    def says(self) -> str:
        """The headline, or "" if the message has none in its TOML file."""
        return filled(self.row.says, self.match)

    @property
    def verdict(self) -> str:
        """The first sentence of the cause, or "" if the message has none in its TOML file."""
        return filled(self.row.verdict, self.match)


@functools.cache
def signatures() -> tuple[Signature, ...]:
    """Return the known messages of data/signatures.toml, and the bugs of data/known_bugs.toml that print a line."""
    # An invalid row in a file raises an exception, because both files are part of the program.
    text = (resources.files("preflight") / "data" / "signatures.toml").read_text(encoding="utf-8")
    rows = read_toml(text, "signatures.toml")["row"]
    messages = (Signature(**{**row, "pattern": re.compile(row["pattern"])}) for row in rows)
    return (*(Signature.of(bug) for bug in load_known_bugs() if bug.line), *messages)


def read_versions(text: str) -> dict[str, str]:
    """Return the library versions in `text`, a log line, as {library: version}."""
    found = ((library, pattern.search(text)) for library, pattern in READERS)
    return {library: next(filter(None, match.groups())) for library, match in found if match}


def find(
    texts: Iterable[str], versions: Mapping[str, str], around: Surroundings | None = None, *, names: bool = False
) -> KnownMessage | None:
    """Return the first known message in `texts`, or None if no text contains a known message.

    A message is skipped if it does not apply to the library versions in `versions` or to the machine in `around`.
    """
    # If `names` is true, messages without a first sentence (`says`) are skipped too.
    rows = [row for row in signatures() if row.applies_to(versions, around) and (row.says or not names)]
    for text in texts:
        for row in rows:
            if match := row.pattern.search(text):
                return KnownMessage(row, match)
    return None


def known_verdict(text: str) -> str:
    """Return the first sentence of a cause, which signatures.toml gives for this log line.

    Return "" if signatures.toml gives no sentence for the line.
    """
    matches = ((row, row.pattern.search(text)) for row in signatures() if row.verdict)
    return next((filled(row.verdict, match) for row, match in matches if match), "")


def filled(text: str, match: re.Match[str], *, quote: bool = False) -> str:
    """Return `text` with {1}, {2} and so on replaced by the groups of `match`.

    If `quote` is true, the groups are quoted for a shell.
    """
    for number, value in enumerate(match.groups(), 1):
        text = text.replace(f"{{{number}}}", shlex.quote(value) if quote and value else value or "")
    return text
