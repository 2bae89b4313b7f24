"""The records of `preflight diff`: the differences between a node and an earlier report."""

from __future__ import annotations

from dataclasses import dataclass

MATTERS = 50  # a change from this weight on may break or slow a job


@dataclass(frozen=True, slots=True)
class Change:
    """A value of a node that differs from an earlier report.

    `weight`, from 0 to 100, says how often such a change breaks or slows a job.
    """

    subject: str  # "GPU 0000:1b:00.0", "eth0", "driver"
    what: str  # "PCIe lanes"
    before: str
    now: str
    weight: int
    why: str  # what it can do to a job

    @property
    def matters(self) -> bool:
        """Return whether the change is likely enough to break or slow a job (its weight is MATTERS or more)."""
        return self.weight >= MATTERS


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """The bus bandwidth of a collective at one size under the default settings, before and now."""

    collective: str
    size_bytes: int
    before_gb_s: float
    now_gb_s: float


@dataclass(frozen=True, slots=True)
class NodeChanges:
    """All changes of one node since an earlier report."""

    host_before: str
    host: str  # now; another host than before if two sibling nodes were compared
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """The result of `preflight diff`.

    The exit code is 0 if no change matters, 1 if a change matters, and 3 if the reports share no node.
    """

    exit_code: int
    since: str  # RFC 3339, the time of the earlier report; "" if the report does not say
    nodes: tuple[NodeChanges, ...]
    new_findings: tuple[str, ...]  # "CHECK: SUBJECT: PROBLEM", of checks that found nothing before
    slower: tuple[SpeedChange, ...]
    not_compared: tuple[str, ...]  # hosts that are in only one of the two reports
