"""The control channel between nodes: the launchers exchange the JSON files (keys) that other nodes need.

The processes inside a node know nothing of the relay. The per-rank agents (supervisors) and the coordinator (conductor)
use one directory (trial/rank/channel.py). The launchers send these keys between nodes, where I is the number of a step
and R is a rank:

    node 0 to all     step/I, store/0   what its conductor writes
    a node to node 0  end/I/R           once all its ranks have answered, in one message, kept as ends/I/R
    both ways         kill/I            without delay
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from preflight.errors import MeetingError
from preflight.system.wakeups import DirectoryWatch
from preflight.trial.nodes.wire import Message, pack, unpack
from preflight.trial.rank.channel import Channel

KEY = re.compile(r"(step|store|kill)\.(\d{1,9})", re.ASCII)  # the channel's temporary files have one more number
END = re.compile(r"(end)\.(\d{1,9})\.(\d{1,6})", re.ASCII)
Send = Callable[[Message], None]


class Relay:
    """The relay of one node, which exchanges the JSON files (keys) of the ranks with other nodes.

    Node 0 (`is_leader`) sends the coordinator's messages and receives answers.
    """

    def __init__(self, directory: str, ranks: range, is_leader: bool) -> None:
        self._channel = Channel(directory)
        self._ranks = ranks
        self._is_leader = is_leader
        self._known: set[str] = set()
        self._answered: dict[int, dict[str, Any]] = {}
        self._watch = DirectoryWatch(directory)
        self._has_looked = False  # at what was there before the watch

    @property
    def fds(self) -> tuple[int, ...]:
        return self._watch.fds

    def outbound(self) -> Iterator[Message]:
        """Yield this node's messages that the other nodes do not have yet, ordered by step."""
        appeared = self._watch.drain()
        if appeared is None or not self._has_looked:
            appeared, self._has_looked = os.listdir(self._channel.directory), True
        names = [name for name in appeared if name not in self._known]
        matches = [match for name in names if (match := KEY.fullmatch(name) or END.fullmatch(name))]
        for match in sorted(matches, key=lambda match: (int(match[2]), match[1] != "store")):
            self._known.add(match[0])
            if match.re is END:
                yield from self._answer(int(match[2]), match[3])
            elif match[1] == "kill" or self._is_leader:
                key = f"{match[1]}/{match[2]}"
                yield {"kind": "key", "key": key, "z": pack(self._channel.get(key))}

    def _answer(self, index: int, rank: str) -> Iterator[Message]:
        """Yield one message with the answers of all ranks of this node, once all these ranks have answered.

        Node 0 sends no such message.
        """
        if self._is_leader:
            return
        answers = self._answered.setdefault(index, {})
        answers[rank] = self._channel.get(f"end/{index}/{rank}")
        if len(answers) == len(self._ranks):
            yield {"kind": "ends", "step": index, "z": pack(self._answered.pop(index))}

    def take_key(self, message: Message) -> bool:
        """Publish a JSON file (key) of another node on this node. Return False if the file already exists.

        Raise MeetingError if the other node may not send a file with this name.
        """
        key = message.get("key")
        match = KEY.fullmatch(str(key).replace("/", "."))
        if match is None or (match[1] != "kill" and self._is_leader):
            raise MeetingError(f"it says {str(key)[:40]!r}, which is not its business")
        if match[0] in self._known or self._channel.has(f"{match[1]}/{match[2]}"):
            return False  # its own word came first
        self._known.add(match[0])
        self._channel.put_first(f"{match[1]}/{match[2]}", unpack(message.get("z")))
        return True

    def take_ends(self, message: Message, ranks: range) -> None:
        """Publish the answers of another node's ranks on this node.

        Raise MeetingError unless the message has exactly one answer for each rank in `ranks`.
        """
        step, answers = message.get("step"), unpack(message.get("z"))
        if not isinstance(step, int) or not isinstance(answers, dict) or set(answers) != set(map(str, ranks)):
            raise MeetingError(f"it answers for other ranks than its own {ranks.start} to {ranks.stop - 1}")
        self._channel.put(f"ends/{step}/{ranks.start}", answers)  # one file: making it takes longer than reading it

    def close(self) -> None:
        self._watch.close()
