"""How far each process got in NCCL's start-up, for logs that simply stop."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from preflight.model.nccl_lines import PATH, Step, process, steps

# What a process did last, and what it waits for next.
STEPS: dict[Step, tuple[str, str]] = {
    Step.BOOTSTRAP: ("chose its bootstrap interface", "every rank reaching rank 0 over that interface"),
    Step.NETWORK: ("chose its network", "every rank joining the communicator"),
    Step.BEGAN: ("began the communicator", "the topology exchange over the bootstrap network"),
    Step.TOPOLOGY: ("read the topology", "connecting to its peers"),
    Step.CHANNELS: ("connected channels", "the connections to its peers (P2P, shared memory or network)"),
    Step.CONNECTED: ("connected rings or trees", "the other ranks' connections"),
    Step.COMPLETE: ("completed its communicator", "the first collective"),
    Step.COLLECTIVE: ("started a collective", "data from its peers"),
}
LIMIT = 8192


@dataclass(slots=True)
class Starts:
    """The furthest step of every process, by host and pid."""

    steps: dict[str, Step] = field(default_factory=dict)
    last_line: dict[str, tuple[int, str, int]] = field(default_factory=dict)  # source, text, line
    collectives: Counter[str] = field(default_factory=Counter)
    paths: set[str] = field(default_factory=set)  # P2P, SHM, NET: what channels were connected by

    def read(self, text: str, source: int, line: int) -> None:
        """Take a line of NCCL's INFO output."""
        key = process(text)
        if key not in self.steps and len(self.steps) >= LIMIT:
            return
        if path := PATH.search(text):
            self.paths.add(path[3].split("/")[0])
        for step in steps(text):
            self.steps[key] = max(step, self.steps.get(key, step))
            self.last_line[key] = (source, text, line)
            self.collectives[key] += step is Step.COLLECTIVE

    def unfinished(self) -> tuple[str, ...]:
        """Return the processes that began and never completed a communicator."""
        return tuple(key for key, step in self.steps.items() if step < Step.COMPLETE)
