from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, node_check
from preflight.model.facts import Gap, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gpu import Mode
from preflight.model.hca import HcaPort, PortState
from preflight.model.parsing import version_tuple
from preflight.model.policy import Expectation

Missed = tuple[str, str, str, str]  # what, what was found, what is wanted, where that was seen
Expected = Callable[[], Iterator[Missed]]
NVML, BUS, PORTS = "NVML", "the PCI bus", "/sys/class/infiniband"


@node_check(
    "policy-expectation",
    blame=Blame.HOST,
    unseen=Unseen.ANSWER,
    reads=("gpus", "nvidia_pci", "driver", "nics", "hca_ports"),
)
def policy_expectation(node: NodeFacts, case: Case) -> Findings:
    """The node has the GPUs, driver, adapters and ports that the policy names.

    Yields a failure for each expectation that the node misses, by the PCI bus where NVML tells nothing. One that can't
    be decided leaves the answer unknown.

    Can't see: everything without --policy.
    """
    if case.policy is None or case.policy.expect == Expectation():
        raise NotApplicable("no policy says what this node must have")
    undecided = []
    for name, expected in _expectations(node, case.policy.expect).items():
        try:
            for what, found, wanted, source in expected():
                yield policy_expectation.finding(
                    Severity.FAIL,
                    f"{node.host} {what}",
                    f"{found}, but the policy expects {wanted}",
                    "repair or reinstall the node, or correct the policy",
                    Evidence(what, found, source),
                    Evidence("expected", wanted, case.policy.source),
                )
        except UnreadableFact as error:
            undecided.append(f"{name}: {error}")
    if undecided:
        raise UnreadableFact(f"the policy's expectation can't be decided: {'; '.join(undecided)}")


def _expectations(node: NodeFacts, expect: Expectation) -> dict[str, Expected]:
    """Return how each expectation that the policy has is decided; one that raises UnreadableFact could not be."""
    found: dict[str, Expected] = {}
    if expect.gpu_count is not None:
        found["gpu_count"] = partial(_gpu_count, node, expect.gpu_count)
    if expect.gpu_model is not None:
        found["gpu_model"] = partial(_gpu_model, node, expect.gpu_model)
    if expect.driver is not None:
        found["driver"] = partial(_driver, node, expect.driver)
    if expect.nic_count is not None:
        found["nic_count"] = partial(_nic_count, node, expect.nic_count)
    if expect.active_ports is not None:
        found["active_ports"] = partial(_active_ports, node, expect.active_ports)
    if expect.port_rate is not None:
        found["port_rate"] = partial(_port_rate, node, expect.port_rate)
    if expect.ecc is not None:
        found["ecc"] = partial(_mode, node, "ecc_mode", "ECC", expect.ecc)
    if expect.mig is not None:
        found["mig"] = partial(_mode, node, "mig_mode", "MIG", expect.mig)
    return found


def _gpu_count(node: NodeFacts, wanted: int) -> Iterator[Missed]:
    if isinstance(node.gpus, Gap):
        on_bus = None if isinstance(node.nvidia_pci, Gap) else len(node.nvidia_pci)
        if on_bus is None or on_bus == wanted:
            raise UnreadableFact(node.gpus.reason)
        yield "GPUs", str(on_bus), str(wanted), BUS
    elif len(node.gpus) != wanted:
        yield "GPUs", str(len(node.gpus)), str(wanted), NVML


def _gpu_model(node: NodeFacts, wanted: str) -> Iterator[Missed]:
    if not node.gpus or (isinstance(node.gpus, Gap) and node.nvidia_pci == ()):
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


def _mode(node: NodeFacts, field: str, name: str, wanted: bool) -> Iterator[Missed]:
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
    """Tell whether a driver is the one that a policy names, or at least that with `>=`."""
    if wanted.startswith(">="):
        return version_tuple(version) >= version_tuple(wanted.removeprefix(">="))
    return version == wanted
