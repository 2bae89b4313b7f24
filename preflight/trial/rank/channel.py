"""The control channel of the per-rank agents on one node: a directory with one JSON file per key."""
# The channel uses files and not a torch store, because files need no port, thread or server, and work with every torch
# version. The run directory has mode 0700.

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
    """A store of JSON values that the ranks of this node share. Keys may contain `/`.

    No operation blocks, except waits with a time limit.
    """

    directory: str

    def put(self, key: str, value: Any) -> None:
        """Publish `value` under `key` in one step, so that no reader sees an incomplete value."""
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
        """Return the value under `key`. The key must already have a value."""
        with open(self._path(key), encoding="utf-8") as file:
            return json.load(file)

    def wait(self, key: str, until: float) -> bool:
        """Wait until `key` has a value or the monotonic time `until` is reached. Return whether the key has a value."""
        # Time in which this process was suspended does not count.
        own_time = OwnTime()
        while not self.has(key):
            until += own_time.look(POLL_S)
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)
        return True

    def collect(self, index: int, world_size: int, node_sizes: Sequence[int], until: Callable[[], float]) -> list[Any]:
        """Return the answers of all ranks to step `index`, in rank order.

        `until` returns the monotonic deadline for the next answer. If a rank is late, raise HarnessError, which names
        the first late rank.
        """
        # `node_sizes` has the number of ranks on each node, and is empty for a single node.
        own = node_sizes[0] if node_sizes else world_size
        answers = [self._answer(f"end/{index}/{rank}", rank, until()) for rank in range(own)]
        for first, count in zip(accumulate(node_sizes), node_sizes[1:], strict=False):
            replies = self._answer(f"ends/{index}/{first}", first, until())
            answers += [replies[str(rank)] for rank in range(first, first + count)]
        return answers

    def _answer(self, key: str, rank: int, until: float) -> Any:
        if not self.wait(key, until):
            raise HarnessError(f"preflight's process of rank {rank} gave no answer in time")
        return self.get(key)

    def _path(self, key: str) -> str:
        return os.path.join(self.directory, key.replace("/", "."))
