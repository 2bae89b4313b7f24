"""The control channel of the per-rank agents on one node: a directory with one JSON file per key.

The channel uses files rather than a torch store. The run directory has mode 0700; files need no port, thread or server,
and the test whether a key exists costs one stat. Files work with every torch, but Store.check exists only since torch
2.3.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from preflight.errors import HarnessError
from preflight.system.wakeups import OwnTime

POLL_S = 0.005
Report = Callable[[dict[str, Any]], None]  # how a child tells its supervisor what happens: JSON objects, one a line


@dataclass(frozen=True, slots=True)
class Channel:
    """JSON values under keys, which the ranks of this node share. Keys may contain `/`.

    No operation blocks, except waits with a time limit.
    """

    directory: str

    def put(self, key: str, value: Any) -> None:
        """Publish `value` under `key` in one step, so that no reader finds half of it."""
        path = self._path(key)
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(json.dumps(value))  # dump() to a file is ten times slower
        os.rename(temporary, path)

    def put_first(self, key: str, value: Any) -> None:
        """Publish `value` under `key`, unless the key already has a value."""
        path = self._path(key)
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(json.dumps(value))
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        os.unlink(temporary)

    def has(self, key: str) -> bool:
        """Return at once whether a value was published under `key`."""
        return os.path.exists(self._path(key))

    def get(self, key: str) -> Any:
        """Return the value under `key`; call this method only if `has(key)`."""
        with open(self._path(key), encoding="utf-8") as file:
            return json.load(file)

    def wait(self, key: str, until: float) -> bool:
        """Wait until `key` has a value (return True) or the monotonic time `until` is reached (return False).

        Pauses of this process don't count.
        """
        own_time = OwnTime()
        while not self.has(key):
            until += own_time.look(POLL_S)
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)
        return True

    def collect(self, index: int, world_size: int, node_sizes: Sequence[int], until: Callable[[], float]) -> list[Any]:
        """Return every rank's answer to step `index`, by rank; HarnessError names the first late rank.

        This node's ranks answer one by one; the ranks of every other node answer in one file. `until` returns the
        monotonic time until which to wait for the next answer. `node_sizes` has each node's number of ranks; it is
        empty for a single node.
        """
        own = node_sizes[0] if node_sizes else world_size
        answers = [self._answer(f"end/{index}/{rank}", rank, until()) for rank in range(own)]
        for first, count in zip(accumulate(node_sizes), node_sizes[1:], strict=False):
            replies = self._answer(f"ends/{index}/{first}", first, until())
            answers += [replies[str(rank)] for rank in range(first, first + count)]
        return answers

    def _answer(self, key: str, rank: int, until: float) -> Any:
        if not self.wait(key, until):
            raise HarnessError(f"the agent of rank {rank} gave no answer in time")
        return self.get(key)

    def _path(self, key: str) -> str:
        return os.path.join(self.directory, key.replace("/", "."))
