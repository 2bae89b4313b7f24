"""What the launcher needs of the other nodes while it waits for its own ranks: a seam between two kinds of waiting."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from preflight.launch.addresses import Listening
from preflight.launch.helper import Helpers
from preflight.launch.mirror import Mirror
from preflight.launch.together import begin_together, common_spec
from preflight.model.placement import Origin, Placement
from preflight.model.run import RunSpec
from preflight.model.together import Alone, Common, Hello

if TYPE_CHECKING:
    from preflight.launch.launcher import Launched

PING_S = 2.0
SILENT_S = 15.0  # a node whose launcher says nothing for so long is gone: it pings every 2 s
HELLO_S = 5.0  # for a stranger to say who it is
FAREWELL_S = 5.0


class Others(Protocol):
    """The other nodes as the launcher's loop sees them."""

    def files(self) -> tuple[list[int], list[int]]:
        """Return the descriptors to wait for, for reading and for writing."""

    def turn(self, launched: Launched) -> None:
        """Do what is due without waiting; note in `launched` what ends the run."""

    @property
    def needs_no_ranks(self) -> bool:
        """Whether this node's ranks may be gone and the run still goes on."""


@dataclass(slots=True)
class Node:
    """This node's part in the meeting, the same for node 0 and the others."""

    placement: Placement
    hello: Hello
    spec: RunSpec
    meet_by: float  # monotonic
    ends_by: float  # monotonic: when the common trials have to be over here
    tell_alone: Callable[[Launched], Alone]  # what this node found by itself, asked once
    alone: Alone | None = None
    mirror: Mirror | None = None
    origins: list[Origin] = field(default_factory=list)  # what the meeting itself chose, and why
    helpers: Helpers = field(default_factory=lambda: Helpers(os.environ))

    def begin(self, common: Common) -> None:
        """Let this node's ranks go on with what all nodes do together; nothing but they listens from now on."""
        self.helpers.close()
        spec = common_spec(self.spec, common, self.ends_by)
        ranks = range(common.first_rank, common.first_rank + spec.local_size)
        directory = begin_together(spec)
        self.mirror = Mirror(directory, ranks, is_host=self.placement.node_rank == 0)

    def start_helpers(self) -> None:
        """Have what looks for ways to the other nodes ready by the time that it is asked."""
        with contextlib.suppress(OSError):  # said when it is asked
            self.helpers.start("preflight.launch.path_probe")

    def close(self) -> None:
        self.helpers.close()
        if self.mirror is not None:
            self.mirror.close()


def why_unlike(mine: Hello, theirs: Hello) -> str:
    """Return why a caller does not belong to this run, "" where it does."""
    if theirs.run_id != mine.run_id:
        return f"it belongs to another run ({theirs.run_id}, here {mine.run_id})"
    if (theirs.protocol, theirs.preflight) != (mine.protocol, mine.preflight):
        return f"versions differ: preflight {theirs.preflight} there, {mine.preflight} on {mine.host}"
    if theirs.nodes != mine.nodes:
        return f"it was told of {theirs.nodes} nodes, {mine.host} of {mine.nodes}"
    if not 0 < theirs.node_rank < mine.nodes:
        return f"it calls itself node {theirs.node_rank} of {mine.nodes}, which is nobody else's number than node 0's"
    return ""


def who_is_missing(
    node: Node, missing: list[int], turned_away: Mapping[str, str], listening: Listening, port: int, waited_s: float
) -> str:
    """Return who did not come, who came and was not taken, and where node 0 waited, in one line."""
    names = [node.placement.name_of(rank) for rank in missing[:8]]
    more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
    here = node.placement.nodes - len(missing)
    told = f"{here} of {node.placement.nodes} nodes came within {waited_s:.0f} s; missing: {', '.join(names)}{more}"
    others = "; ".join(why for _, why in sorted(turned_away.items())[:4])
    where = ", ".join(address or "all interfaces" for address in listening.addresses)
    waited = f"node 0 ({node.hello.host}) listened on {where} port {port} ({listening.why})"
    return "; ".join(part for part in (told, others, waited) if part)
