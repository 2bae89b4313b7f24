"""Which of thousands of connections have something to say: epoll, and room for their descriptors."""

from __future__ import annotations

import resource
import select
from collections.abc import Iterable

from preflight.errors import MeetingError
from preflight.launch.wire import Link

SPARE = 128  # descriptors for everything else: logs, pipes, libraries that are loaded


class Ready:
    """Links that are watched; its own descriptor is readable when any of them is. Closed links leave by themselves."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wanting: dict[int, bool] = {}  # descriptor -> whether it is also waited for to take data

    @property
    def fd(self) -> int:
        """The descriptor to wait for; a small number, however many links there are."""
        return self._epoll.fileno()

    def watch(self, link: Link) -> None:
        """Watch a new link."""
        self._wanting[link.fileno()] = False
        self._epoll.register(link.fileno(), select.EPOLLIN)

    def also_for_sending(self, links: Iterable[Link]) -> None:
        """Watch those that have something unsent until they take it, and only those."""
        for link in links:
            wants = link.wants_to_send
            if wants != self._wanting.get(link.fileno(), False):
                self._wanting[link.fileno()] = wants
                self._epoll.modify(link.fileno(), select.EPOLLIN | (select.EPOLLOUT if wants else 0))

    def descriptors(self) -> set[int]:
        """Return, at once, the descriptors that have something to say, take data, or broke."""
        return {fd for fd, _ in self._epoll.poll(0, 4096)}

    def close(self) -> None:
        self._epoll.close()


def make_room(links: int) -> None:
    """Raise the limit of open files as far as so many links need; MeetingError where that is not allowed.

    Called after the ranks were started: they keep the limit that the job will have.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = links + SPARE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise MeetingError(f"{links} nodes need {needed} open files on node 0, {hard} are allowed: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
