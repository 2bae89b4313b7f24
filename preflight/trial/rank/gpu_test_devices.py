"""Access to the GPUs for the tests without NCCL: CUDA through torch, or simulated GPUs of a test backend.

A GPU's place is its number among the GPUs of the run on this node, which equals its local rank.
"""
# If the module of `--backend NAME@MODULE` has an attribute DEVICES, the tests use those devices instead of CUDA. If a
# simulated NCCL lacks this attribute, no GPU is tested.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from preflight.model.gap import Gap

Buffer = Any  # memory of a GPU or of the host; only the devices look inside


@dataclass(frozen=True, slots=True)
class LoadSample:
    """NVML's values for a GPU at one moment under load: clocks, temperature, power, throttle reasons and PCIe link."""

    sm_mhz: int | Gap
    temperature_c: int | Gap
    power_w: float | Gap
    throttle_reasons: tuple[str, ...] | Gap
    pcie_gen: int | Gap
    pcie_width: int | Gap


class Product(Protocol):
    """A matrix product on one GPU with a known exact result."""

    def multiply_us(self) -> float:
        """Multiply once and return how long the GPU took, in microseconds."""

    def keep(self) -> None:
        """Keep the result's bits as the reference for all later results."""

    def differs(self) -> bool:
        """Return whether the bits of the last result differ from the reference that `keep` stored."""

    def wrong_elements(self) -> int:
        """Compare some rows and columns with the exact result of the CPU, and return how many elements differ."""

    def digest(self) -> str:
        """Return a short hash of the result's bits, to compare GPUs."""


class Devices(Protocol):
    """The device operations that the GPU tests need.

    Every method may raise OutOfGpuMemory, or RuntimeError if CUDA fails.
    """

    def open(self, place: int, uuid: str, bdf: str) -> None:
        """Make a context on the GPU at `place`, verify its UUID and PCI address `bdf`, and load the test kernels."""

    def settle(self, places: Sequence[int]) -> None:
        """Release unused memory. Raise RuntimeError if a context on one of the GPUs `places` no longer works."""

    def can_access_peer(self, source: int, target: int) -> bool:
        """Return whether CUDA reports peer access from the GPU `source` to the GPU `target`."""

    def allocate(self, place: int, elements: int, wide: bool) -> Buffer:
        """Return a buffer for `elements` integers on the GPU at `place`.

        Each integer has 8 bytes if `wide` is true, and 4 bytes if `wide` is false.
        """

    def allocate_on_host(self, elements: int) -> Buffer:
        """Return pinned memory for `elements` integers of 4 bytes near this thread's CPUs.

        Calls from the same CPUs share this memory.
        """

    def write_pattern(self, buffer: Buffer, salt: int) -> None:
        """Fill the buffer with numbers that depend on position and `salt`, and wait until the buffer is written."""

    def write_sentinel(self, buffer: Buffer) -> None:
        """Fill the buffer with a value that no pattern contains, and wait until the buffer is written."""

    def copy(self, transfers: Sequence[tuple[Buffer, Buffer]]) -> None:
        """Copy all sources to their targets in parallel, and wait until all copies have ended."""
        # Between buffers of the same type, the copy engine copies. From 4-byte to 8-byte numbers, a kernel on the
        # source GPU copies if there is peer access.

    def time_copies(self, transfers: Sequence[tuple[Buffer, Buffer]], repeats: int) -> float:
        """Return the total seconds for `repeats` copies of each transfer, with all transfers in parallel."""

    def compare(self, buffer: Buffer, salt: int) -> tuple[int, int]:
        """Return how many elements differ from the pattern of `salt`, and how many of these were never written."""

    def product(self, place: int, dtype: str, rows: int) -> Product:
        """Return a product of two square matrices on the GPU at `place`.

        Each matrix has `rows` rows and the data type `dtype`.
        """

    def sampler(self, place: int, uuid: str) -> Callable[[], LoadSample]:
        """Return a function that samples the clocks, temperature and PCIe link of the GPU at `place`.

        Raise UnreadableFact if NVML does not start.
        """


def check_device(properties: Any, uuid: str, bdf: str) -> None:
    """Raise RuntimeError if CUDA's `properties` show another UUID or PCI address than the expected GPU has.

    torch before 2.5 gives no UUID, and some versions give no address.
    """
    if hasattr(properties, "uuid"):
        got, wanted = f"GPU-{str(properties.uuid).removeprefix('GPU-')}", uuid
    elif bdf and hasattr(properties, "pci_bus_id"):
        got = f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
        wanted = bdf
    else:
        return  # CUDA_VISIBLE_DEVICES names the GPU by its UUID, which leaves no room for another
    if got != wanted:
        raise RuntimeError(f"CUDA gave {got} where {wanted} was asked for")
