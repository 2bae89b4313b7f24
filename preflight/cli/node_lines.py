"""Run a command on many nodes: print a line for each node that answers, and show which nodes have not answered yet."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from preflight.check.on_nodes import LOGIN_S, NodeCommands, visit
from preflight.cli.output import PROGRAM
from preflight.errors import Interrupted, MalformedInput, UsageError
from preflight.model.placement import compress
from preflight.model.units import counted
from preflight.show.text import line, shorten
from preflight.system.streams import Progress, to_stderr, to_stdout

MOST_NAMED = 60  # characters of the nodes that are waited for, in a line of a log
MOST_SAID = 100  # characters of a node's answer


def visit_all(
    way: NodeCommands, limit_s: float, take: Callable[[str, Any], str], *, is_quiet: bool
) -> tuple[dict[str, str], Interrupted | None]:
    """Run the commands of `way` (NodeCommands), and return ({host: reason}, signal).

    The dictionary has the failed nodes. The signal is the signal that interrupted the commands, or None. `take` is
    called with each reply. `take` stores the reply and returns a text about the reply, or raises MalformedInput.
    """
    # A node fails if it sent no readable reply. Each node has `limit_s` seconds, plus time for the login.
    lines = NodeLines(len(way.commands), is_quiet)
    unread: dict[str, str] = {}

    def answer(host: str, report: Any) -> None:
        try:
            lines.say(host, take(host, report))
        except MalformedInput as error:
            unread[host] = f"what came back can't be read: {error}"

    stopped = None
    try:
        problems = visit(way, limit_s + LOGIN_S, answer, lines.watch)
    except Interrupted as error:
        stopped, problems = error, dict.fromkeys(way.commands, str(error))
    lines.progress.clear()
    return {host: why for host, why in (problems | unread).items() if host not in lines.answered}, stopped


@contextlib.contextmanager
def folder_made(option: str, folder: str) -> Iterator[None]:
    """Create `folder` for the block. After the block, remove the folder if it is new and empty.

    Raise UsageError if the folder can't be created.
    """
    # `option` is the option that names the folder.
    is_new = not os.path.isdir(folder)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option} {folder}: a folder for the reports can't be made: {error.strerror}") from None
    try:
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(folder)


@dataclass(slots=True)
class NodeLines:
    """The progress lines on stderr about `count` nodes, and the nodes that answered.

    If `is_quiet` is true, nothing is written.
    """

    count: int
    is_quiet: bool
    answered: list[str] = field(default_factory=list)
    progress: Progress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = Progress(is_quiet=self.is_quiet)

    def say(self, host: str, words: str) -> None:
        """Record that the node `host` has answered, and print the text `words` about the node."""
        self.answered.append(host)
        if not self.is_quiet:
            self.progress.clear()
            to_stderr(f"{PROGRAM}: {host}: {line(shorten(words, MOST_SAID))}\n")

    def watch(self, at_work: Sequence[str], waiting: int) -> None:
        """Show how many nodes answered, which nodes are at work, and how many nodes are not started (`waiting`)."""
        more = f", {waiting} not started" if waiting else ""
        said = f"{len(self.answered)} of {counted(self.count, 'node')} answered{more}; waiting for {compress(at_work)}"
        self.progress.show(lambda width: shorten(said, max(MOST_NAMED, width - 1)))


def say_back(message: dict[str, Any]) -> None:
    """Print `message` as one JSON line, for the preflight process that started this process."""
    to_stdout(json.dumps(message) + "\n")
