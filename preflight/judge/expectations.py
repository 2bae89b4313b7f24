"""The keys that the table `[expect]` of a site policy may have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from preflight.errors import UnreadableFact
from preflight.model.facts import Gap, NodeFacts, known
from preflight.model.gpu import Mode
from preflight.model.hca import HcaPort, PortState
from preflight.model.parsing import version_tuple

Missed = tuple[str, str, str, str]  # the property, its value, the expected value, the source of the value
NVML, BUS, PORTS = "NVML", "the PCI bus", "/sys/class/infiniband"
DRIVER = re.compile(r"(>=)?\d{1,5}(\.\d{1,5}){0,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value in a policy, with a description for error messages and a function that tests a value."""

    words: str
    takes: Callable[[Any], bool]


COUNT = Kind("a count is needed", lambda value: type(value) is int and 0 <= value <= 1 << 16)
TEXT = Kind("text is needed", lambda value: isinstance(value, str) and bool(value.strip()))
SWITCH = Kind("true or false is needed", lambda value: isinstance(value, bool))
RATE = Kind("Gbit/s above 0 is needed", lambda value: type(value) in (int, float) and 0 < value < 1e6)
VERSION = Kind(
    'write "580.95.05" or ">=580.65"', lambda value: isinstance(value, str) and bool(DRIVER.fullmatch(value))
)


@dataclass(frozen=True, slots=True)
class Expectation:
    """A key of `[expect]` in a policy, with the kind of its value and a function that tests a node.

    The function `missed` yields the differences between a node and the policy. It raises UnreadableFact if a value is
    missing.
    """

    # `reads` names the values of a node that the function `missed` needs.

    reads: tuple[str, ...]
    kind: Kind
    missed: Callable[[NodeFacts, Any], Iterator[Missed]]


def _gpu_count(node: NodeFacts, wanted: int) -> Iterator[Missed]:
    if isinstance(node.gpus, Gap):
        on_bus = None if isinstance(node.nvidia_pci, Gap) else len(node.nvidia_pci)
        if on_bus is None or on_bus == wanted:
            raise UnreadableFact(node.gpus.reason)
        yield "GPUs", str(on_bus), str(wanted), BUS
    elif len(node.gpus) != wanted:
        yield "GPUs", str(len(node.gpus)), str(wanted), NVML


def _gpu_model(node: NodeFacts, wanted: str) -> Iterator[Missed]:
    if node.gpus == () or (isinstance(node.gpus, Gap) and node.nvidia_pci == ()):
        yield "GPUs", "none", wanted, BUS if isinstance(node.gpus, Gap) else NVML
        return
    for gpu in known(node.gpus):
        if wanted.casefold() not in known(gpu.name).casefold():
            yield f"GPU {gpu.nvml_index}", known(gpu.name), wanted, NVML


def _driver(node: NodeFacts, wanted: str) -> Iterator[Missed]:
    version = known(known(node.driver).version)
    if not is_driver(version, wanted):
        yield "driver", version, wanted, NVML


def _nic_count(node: NodeFacts, wanted: int) -> Iterator[Missed]:
    count = len(known(node.nics))
    if count != wanted:
        yield "RDMA adapters", str(count), str(wanted), PORTS


def _active(node: NodeFacts) -> list[HcaPort]:
    return [port for port in known(node.hca_ports) if known(port.state) is PortState.ACTIVE]


def _active_ports(node: NodeFacts, wanted: int) -> Iterator[Missed]:
    count = len(_active(node))
    if count != wanted:
        yield "active RDMA ports", str(count), str(wanted), PORTS


def _port_rate(node: NodeFacts, wanted_gbit_s: float) -> Iterator[Missed]:
    active = _active(node)
    if not active:
        yield "active RDMA ports", "none", f"{wanted_gbit_s:g} Gbit/s", PORTS
    for port in active:
        rate = known(port.rate_gbit_s)
        if rate < wanted_gbit_s:
            yield f"{port.hca}:{port.port}", f"{rate:g} Gbit/s", f"{wanted_gbit_s:g} Gbit/s", PORTS


def _mode(field: str, name: str, node: NodeFacts, wanted: bool) -> Iterator[Missed]:
    gpus = () if isinstance(node.gpus, Gap) and node.nvidia_pci == () else known(node.gpus)
    if not gpus:
        yield "GPUs", "none", f"{name} {_switch(wanted)}", NVML
    for gpu in gpus:
        is_on = known(getattr(gpu, field)) is Mode.ENABLED
        if is_on is not wanted:
            yield f"GPU {gpu.nvml_index} {name}", _switch(is_on), _switch(wanted), NVML


def _switch(is_on: bool) -> str:
    return "on" if is_on else "off"


def is_driver(version: str, wanted: str) -> bool:
    """Return whether the driver `version` is the version that `wanted` demands.

    If `wanted` is `>=VERSION`, `version` must be at least VERSION. Otherwise, `version` must equal `wanted`.
    """
    if wanted.startswith(">="):
        return version_tuple(version) >= version_tuple(wanted.removeprefix(">="))
    return version == wanted


EXPECTED = {
    "gpu_count": Expectation(("gpus", "nvidia_pci"), COUNT, _gpu_count),
    "gpu_model": Expectation(("gpus", "nvidia_pci"), TEXT, _gpu_model),  # part of the name, whatever its case
    "driver": Expectation(("driver",), VERSION, _driver),  # "580.95.05" exactly, ">=580.65" at least
    "nic_count": Expectation(("nics",), COUNT, _nic_count),
    "active_ports": Expectation(("hca_ports",), COUNT, _active_ports),  # of RDMA adapters
    "port_rate": Expectation(("hca_ports",), RATE, _port_rate),  # the least of every active port
    "ecc": Expectation(("gpus", "nvidia_pci"), SWITCH, partial(_mode, "ecc_mode", "ECC")),
    "mig": Expectation(("gpus", "nvidia_pci"), SWITCH, partial(_mode, "mig_mode", "MIG")),
}
