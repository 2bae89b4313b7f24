"""The settings and the machine data that a recommendation uses in addition to the test results."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.errors import NotApplicable, UnreadableFact
from preflight.model.collective import Collective
from preflight.model.facts import ContainerKind, Gap, NodeFacts, SoftwareFacts, TorchFacts, known_or
from preflight.model.gpu import DriverFacts
from preflight.model.links import Expected, Links
from preflight.model.trial import Setting
from preflight.search.gpus.link_speeds import expected_busbw


@dataclass(frozen=True, slots=True)
class MachineContext:
    """The data that a recommendation uses in addition to the test results.

    The data are the available settings, the inherited settings, and the facts of the node.
    """

    settings: tuple[Setting, ...] = ()
    inherited: tuple[Setting, ...] = ()
    node: NodeFacts | None = None
    gpus: tuple[int, ...] = ()  # nvml_index
    links: Links | None = None
    learnt_on: str = ""  # a date

    def expected(self, collective: Collective, size_bytes: int) -> Expected | None:
        """Return the expected bus bandwidth of a collective, or None if the bandwidth is unknown."""
        if self.node is None or self.links is None or len(self.gpus) < 2:
            return None
        try:
            return expected_busbw(self.links, self.node, self.gpus, collective, size_bytes)
        except (NotApplicable, UnreadableFact):
            return None

    def is_contained(self) -> bool:
        """Return whether preflight is known to have run in a container."""
        if self.node is None or isinstance(self.node.system, Gap):
            return False
        return known_or(self.node.system.container, ContainerKind.NONE) is not ContainerKind.NONE

    def learnt(self) -> str:
        """Return the test date and the known versions, such as `2026-11-21 with NCCL 2.28.9, driver 580.95.05`.

        Return "" if the date and the versions are unknown.
        """
        versions = []
        software, driver = (self.node.software, self.node.driver) if self.node is not None else (None, None)
        torch = software.torch if isinstance(software, SoftwareFacts) else None
        if isinstance(torch, TorchFacts):
            versions.append(f"torch {torch.version}" if isinstance(torch.nccl, Gap) else f"NCCL {torch.nccl}")
        if isinstance(driver, DriverFacts) and not isinstance(driver.version, Gap):
            versions.append(f"driver {driver.version}")
        return " with ".join(part for part in (self.learnt_on, ", ".join(versions)) if part)
