"""Which NCCL a job will load, as far as its wheel tells, and what that version knows."""

from __future__ import annotations

import re

from preflight.model.facts import Gap, NodeFacts, SoftwareFacts, TorchFacts

Version = tuple[int, int]
VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.|\+|$)")


def nccl_version(node: NodeFacts) -> Version | None:
    """Return (2, 28); None where no wheel tells it: torch may bring its own NCCL or load the system's."""
    if not isinstance(node.software, SoftwareFacts) or not isinstance(node.software.torch, TorchFacts):
        return None
    told = node.software.torch.nccl
    match = None if isinstance(told, Gap) else VERSION.match(told)
    return (int(match[1]), int(match[2])) if match else None


def version_text(version: Version) -> str:
    """Return `NCCL 2.28`."""
    return f"NCCL {version[0]}.{version[1]}"


def why_not_known(version: Version | None, since: Version, *, on_since: Version | None = None) -> str:
    """Return why a variable does nothing in this version, "" where it may do something or the version is not known.

    `since` is the first version that reads it, `on_since` the first in which what it switches off is on by itself.
    """
    if version is None:
        return ""
    if version < since:
        return f"{version_text(version)} does not read it; {version_text(since)} was the first"
    if on_since is not None and version < on_since:
        return f"{version_text(version)} does not use by itself what it switches off"
    return ""
