"""The door to the GPUs for the tests below NCCL: CUDA through torch, or stand-ins that a test's backend brings.

A GPU's place is CUDA's number for it in this process. A module given with `--backend NAME@MODULE` that has an attribute
DEVICES tests those in CUDA's place; a stand-in for NCCL without them tests none, since its GPUs are not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from preflight.model.gap import Gap

Buffer = Any  # memory of a GPU or of the host; only the devices look inside


@dataclass(frozen=True, slots=True)
class LoadSample:
    """What NVML says of a GPU at one moment."""

    sm_mhz: int | Gap
    temperature_c: int | Gap
    power_w: float | Gap
    throttle_reasons: tuple[str, ...] | Gap
    pcie_gen: int | Gap
    pcie_width: int | Gap


class Product(Protocol):
    """A matrix product on one GPU whose exact result is known."""

    def multiply_us(self) -> float:
        """Multiply once and return how long the GPU took."""

    def keep(self) -> None:
        """Remember the result's bits as those that every other one must have."""

    def differs(self) -> bool:
        """Return whether the result's bits are not the remembered ones."""

    def wrong_elements(self) -> int:
        """Return how many elements of some rows are not what whole-number arithmetic on the CPU gives."""

    def digest(self) -> str:
        """Return a digest of the result's bits."""


class Devices(Protocol):
    """What the tests need. Every method may raise OutOfGpuMemory, and RuntimeError where CUDA fails."""

    def open(self, place: int, uuid: str, bdf: str) -> None:
        """Make a context on the GPU, prove that it is the one meant, and load what the tests run there."""

    def settle(self, places: Sequence[int]) -> None:
        """Give back memory that nothing uses; raise where a context on one of these GPUs no longer works."""

    def can_access_peer(self, source: int, target: int) -> bool:
        """Return CUDA's answer."""

    def allocate(self, place: int, elements: int, wide: bool) -> Buffer:
        """Return memory for whole numbers of 4 bytes, or 8 where `wide`, on the GPU."""

    def allocate_on_host(self, elements: int) -> Buffer:
        """Return pinned memory for whole numbers of 4 bytes near the CPUs that this thread runs on; they share it."""

    def write_pattern(self, buffer: Buffer, salt: int) -> None:
        """Fill with numbers that differ from place to place and from salt to salt, and wait until they are there."""

    def write_sentinel(self, buffer: Buffer) -> None:
        """Fill with what no pattern holds, and wait until it is there."""

    def copy(self, transfers: Sequence[tuple[Buffer, Buffer]]) -> None:
        """Copy each source to its target, all at once on streams of their own, and wait for the end.

        Same type: the copy engine does it. From 4-byte to 8-byte numbers: a kernel on the source's SMs, if there is
        peer access.
        """

    def time_copies(self, transfers: Sequence[tuple[Buffer, Buffer]], repeats: int) -> float:
        """Return the seconds from the first to the last of `repeats` copies of each transfer, all at once."""

    def compare(self, buffer: Buffer, salt: int) -> tuple[int, int]:
        """Return how many elements are not the pattern's, and how many of these still hold the sentinel."""

    def product(self, place: int, dtype: str, rows: int) -> Product:
        """Return a product of two square matrices."""

    def sampler(self, place: int, uuid: str) -> Callable[[], LoadSample]:
        """Return what reads the GPU's clocks, heat and link; UnreadableFact where NVML does not start."""


def check_device(properties: Any, uuid: str, bdf: str) -> None:
    """Raise RuntimeError unless CUDA's device is the GPU meant; torch < 2.5 gives no uuid, some give no address."""
    if hasattr(properties, "uuid"):
        got, wanted = f"GPU-{str(properties.uuid).removeprefix('GPU-')}", uuid
    elif bdf and hasattr(properties, "pci_bus_id"):
        got = f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
        wanted = bdf
    else:
        return  # CUDA_VISIBLE_DEVICES names the GPU by its UUID, which leaves no room for another
    if got != wanted:
        raise RuntimeError(f"CUDA gave {got} where {wanted} was asked for")
