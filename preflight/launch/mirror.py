"""The control channel across nodes: each launcher mirrors what the others must know of its node's control directory.

Inside a node nothing knows of it: supervisors and conductor see one directory (rank/channel.py). Between nodes goes

    node 0 to all     step/I, store/0   what its conductor publishes
    a node to node 0  end/I/R           once all of its ranks have answered, in one message
    both, at once     kill/I
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from preflight.errors import MeetingError
from preflight.launch.wire import Message, pack, unpack
from preflight.rank.channel import Channel
from preflight.system.watch import DirectoryWatch

FROM_THE_CONDUCTOR = ("step", "store")
FILE = re.compile(r"(step|store|kill|end)\.(\d{1,9})(?:\.(\d{1,6}))?", re.ASCII)
Send = Callable[[Message], None]


class Mirror:
    """One node's side: `ranks` are its own; as node 0 it passes the conductor's words on and takes answers in."""

    def __init__(self, directory: str, ranks: range, is_host: bool) -> None:
        self._channel = Channel(directory)
        self._ranks = ranks
        self._is_host = is_host
        self._known: set[str] = set()
        self._answered: dict[int, dict[str, Any]] = {}
        self._watch = DirectoryWatch(directory)

    @property
    def fds(self) -> tuple[int, ...]:
        return self._watch.fds

    def outbound(self) -> Iterator[Message]:
        """Yield what has appeared here and is for the other nodes, in the order of the steps."""
        self._watch.drain()
        names = [name for name in os.listdir(self._channel.directory) if name not in self._known]
        matches = [match for match in map(FILE.fullmatch, names) if match]
        for match in sorted(matches, key=lambda match: (int(match[2]), match[1] != "store")):
            self._known.add(match[0])
            yield from self._told(match[1], int(match[2]), match[3])

    def _told(self, what: str, index: int, rank: str | None) -> Iterator[Message]:
        if what == "kill" or (what in FROM_THE_CONDUCTOR and self._is_host):
            yield {"kind": "key", "key": f"{what}/{index}", "z": pack(self._channel.get(f"{what}/{index}"))}
        elif what == "end" and rank is not None and not self._is_host:
            answers = self._answered.setdefault(index, {})
            answers[rank] = self._channel.get(f"end/{index}/{rank}")
            if len(answers) == len(self._ranks):
                yield {"kind": "ends", "step": index, "z": pack(self._answered.pop(index))}

    def take_key(self, message: Message) -> None:
        """Publish a key of another node here; MeetingError where it has no business to say it."""
        key = message.get("key")
        match = FILE.fullmatch(str(key).replace("/", "."))
        if match is None or match[3] or (match[1] != "kill" and (self._is_host or match[1] == "end")):
            raise MeetingError(f"it says {str(key)[:40]!r}, which is not its business")
        if match[0] in self._known or self._channel.has(f"{match[1]}/{match[2]}"):
            return  # its own word came first
        self._known.add(match[0])
        self._channel.put_first(f"{match[1]}/{match[2]}", unpack(message.get("z")))

    def take_ends(self, message: Message, ranks: range) -> None:
        """Publish the answers of another node's ranks; MeetingError where they are not those of `ranks`."""
        step, answers = message.get("step"), unpack(message.get("z"))
        if not isinstance(step, int) or not isinstance(answers, dict) or set(answers) != set(map(str, ranks)):
            raise MeetingError(f"it answers for other ranks than its own {ranks.start} to {ranks.stop - 1}")
        for rank, answer in answers.items():
            self._known.add(f"end.{step}.{rank}")
            self._channel.put(f"end/{step}/{rank}", answer)

    def close(self) -> None:
        self._watch.close()
