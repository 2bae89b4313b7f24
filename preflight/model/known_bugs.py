"""Known bugs of released software, and whether a bug can affect a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from preflight.model.word import Word


class Effect(Word):
    """The effect of a bug on a job."""

    HANGS = "hangs"
    CRASHES = "crashes"
    FAILS = "fails"  # with an error
    WRONG_DATA = "wrong_data"
    OUT_OF_MEMORY = "out_of_memory"  # of a GPU
    HOST_MEMORY = "host_memory"


class Sureness(Word):
    """How a bug is confirmed: by a fix of the component's makers, by several people, or only by one report."""

    FIXED = "fixed"
    CONFIRMED = "confirmed"
    REPORTED = "reported"


SURE_WORDS = {
    Sureness.FIXED: "its makers say so",
    Sureness.CONFIRMED: "confirmed by several",
    Sureness.REPORTED: "one report",
}


class BugFit(Enum):
    """Whether a bug can affect a job. UNKNOWN means that a needed value is not known."""

    YES = "yes"
    UNKNOWN = "unknown"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The known software, machine and size of a job. An empty value or 0 means unknown."""

    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by component: each that is loaded
    architecture: str = ""
    gpus: tuple[str, ...] = ()  # their names
    ranks: int = 0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class KnownBug:
    """A row of data/known_bugs.toml. The head of data/known_bugs.toml explains the columns."""

    id: str
    component: str
    effect: Effect
    says: str
    do: str
    source: str
    sure: Sureness
    looked: str
    first: str = ""
    last: str = ""
    fixed: str = ""
    architecture: str = ""
    gpus: str = ""
    min_ranks: int = 0
    min_nodes: int = 0
    where: str = ""
    line: str = ""
    frame: str = ""
    alike: bool = False
    proof: str = ""
    cause: str = ""
    headline: bool = False
    warns: bool = False
    note: str = ""
    read: str = ""

    def has(self, version: str) -> bool:
        """Return whether `version` of the component has the bug.

        The fields `first`, `last` and `fixed` of the bug decide.
        """
        numbers, last = version_numbers(version), version_numbers(self.last)
        is_before = bool(self.first) and numbers < version_numbers(self.first)
        is_fixed = bool(self.fixed) and numbers >= version_numbers(self.fixed)
        return not is_before and not is_fixed and (not last or numbers[: len(last)] <= last)

    def fits(self, around: Surroundings) -> BugFit:
        """Return whether the bug can affect a job in `around`.

        The result is UNKNOWN if a needed value is not known. The result is also UNKNOWN if the bug has a condition
        (`where`) that preflight can't read.
        """
        loaded = around.versions.get(self.component, ())
        contradicts = (
            loaded and not any(map(self.has, loaded)),
            self.architecture and around.architecture and self.architecture != around.architecture,
            self.gpus and around.gpus and not any(re.search(self.gpus, name) for name in around.gpus),
            around.ranks and around.ranks < self.min_ranks,
            around.nodes and around.nodes < self.min_nodes,
        )
        if any(contradicts):
            return BugFit.NO
        return BugFit.UNKNOWN if self.where or self.not_known(around) else BugFit.YES

    def not_known(self, around: Surroundings) -> tuple[str, ...]:
        """Return the names of the unknown values in `around` that decide whether the bug fits."""
        lacks = {
            f"the version of {self.component}": bool(self.span) and not around.versions.get(self.component),
            "the CPU's architecture": bool(self.architecture) and not around.architecture,
            "the GPUs": bool(self.gpus) and not around.gpus,
            "the number of ranks": self.min_ranks > 0 and not around.ranks,
            "the number of nodes": self.min_nodes > 0 and not around.nodes,
        }
        return tuple(name for name, is_lacking in lacks.items() if is_lacking)

    @property
    def is_told_by_machine(self) -> bool:
        """Whether the bug's log line counts only on an affected machine, because other faults print the same line."""
        return bool(self.gpus or self.architecture) and self.cause != "known_bug"

    def is_of_machine(self, around: Surroundings | None) -> bool:
        """Return whether `around` has the GPUs and the CPU architecture that the bug needs.

        The result is False if a needed value is not known, or if a known value contradicts the bug.
        """
        if around is None or self.fits(around) is BugFit.NO:
            return False
        return bool(around.gpus or not self.gpus) and bool(around.architecture or not self.architecture)

    def version_in(self, around: Surroundings) -> str:
        """Return the component and its loaded version that has the bug, such as `NCCL 2.28.9`.

        Without a known version, return only the component.
        """
        loaded = around.versions.get(self.component, ())
        return " ".join((self.component, *[each for each in loaded if self.has(each)][:1]))

    @property
    def span(self) -> str:
        """The versions that have the bug, such as `2.26.2 and newer, before 2.28.3`, or "" if no version is known."""
        end = f"before {self.fixed}" if self.fixed else f"up to {self.last}" if self.last else ""
        if not self.first or self.first == self.last:
            return self.first or end
        return ", ".join(filter(None, (f"{self.first} and newer", end)))

    @property
    def how_sure(self) -> str:
        """How the bug is confirmed, and which information about the bug is missing."""
        gaps = []
        if self.component != "Fabric Manager":
            gaps += ["the first version is not stated"] if not self.first else []
            gaps += ["a release that fixes it is not stated"] if not self.fixed else []
        gaps += [self.note] if self.note else []
        gaps += ["only excerpts of the thread were read"] if self.read == "part" else []
        return "; ".join((SURE_WORDS[self.sure], *gaps))

    @property
    def address(self) -> str:
        """The address of the bug's first source."""
        return self.source.partition("; ")[0]

    def shows_in(self, frames: Iterable[str]) -> bool:
        """Return whether one of the stack frames, written as `function (file)`, shows the bug."""
        return bool(self.frame) and any(re.search(self.frame, each) for each in frames)


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without its build suffix, such as (2, 28, 9) for `2.28.9+cuda13.0`."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version.partition("+")[0]))


def fitting(bugs: Iterable[KnownBug], around: Surroundings) -> tuple[tuple[KnownBug, BugFit], ...]:
    """Return the bugs that can affect a job with the surroundings `around`, each with its BugFit.

    Bugs that certainly fit come first, then bugs that may fit. In each of the two groups, bugs with better evidence
    come first. If the evidence is equal, bugs with more conditions come first.
    """
    found = [(bug, fit) for bug in bugs if (fit := bug.fits(around)) is not BugFit.NO]
    sures = list(Sureness)
    return tuple(
        sorted(found, key=lambda one: (one[1] is not BugFit.YES, sures.index(one[0].sure), -_conditions(one[0])))
    )


def _conditions(bug: KnownBug) -> int:
    return sum(map(bool, (bug.architecture, bug.gpus, bug.min_ranks, bug.min_nodes, bug.first, bug.fixed or bug.last)))
