from __future__ import annotations

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, run_check
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import HcaPort, NodeFacts, PciDevice, known, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gap import NOT_READ, Gap
from preflight.model.hca import PortState
from preflight.model.parts import part_of_port
from preflight.model.perftest import LinkTest
from preflight.model.units import size_text

REACHED = Bound(
    0.80, "of the port's rate, or of its adapter's PCIe link if that is slower",
    "sites accept a port that reaches 90% of its rate; a test with one queue, small messages or a far CPU may measure "
    "less",
    "azurehpc accepts 180 of 200 Gbit/s, 360 of 400 Gbit/s [unverified]",
    "too high: a test that was not tuned blames a healthy port; too low: a slow cable or PCIe slot passes",
)  # fmt: skip
PCIE_SHARE = Bound(
    0.85, "of a PCIe link's signaling rate can carry data",
    "with packets of 256 bytes, headers and flow control take the rest",
    JUDGMENT,
    "too high: a port behind a narrow link is blamed; too low: a slow port passes",
)  # fmt: skip
LEAST_BYTES = Bound(
    65536, "bytes or more per message; tests with smaller messages are ignored",
    "smaller messages do not reach the full rate of a port; ib_write_bw uses this size by default",
    JUDGMENT,
    "too low: a test with small messages blames a healthy port; too high: a usual test is ignored",
)  # fmt: skip


@run_check(
    "fabric-test",
    blame=Blame.FABRIC,
    unseen=Unseen.NOTHING,
    reads=("nodes",),
    bounds=(REACHED, PCIE_SHARE, LEAST_BYTES),
)
def fabric_test(case: Case) -> Findings:
    """In the given results of ib_write_bw, each adapter of this node reached 80% of what its port can carry.

    Yields a WARN for each port whose best result at 64 KiB or more is below 80%. If an active port has no result, the
    check is inconclusive.

    Can't see: when, with which peer and over which cable a test ran, and what else used the link then.
    """
    # A port can carry its rate, or less if the PCIe link of the adapter is slower. preflight does not run ib_write_bw
    # itself, because the test would load links that others use. A bidirectional result counts half.
    if not case.fabric:
        raise NotApplicable("no results of ib_write_bw were given (--fabric)")
    node = case.nodes[0]
    ports = {(port.hca, port.port): port for port in known(node.hca_ports)}
    tests: dict[tuple[str, int], list[LinkTest]] = {}
    for test in case.fabric:
        tests.setdefault((test.device, test.port), []).append(test)
    large = {key: [test for test in of_port if test.size_bytes >= LEAST_BYTES.value] for key, of_port in tests.items()}
    limits = {key: limit_of(node, port) for key, port in ports.items() if key in tests}
    for key, of_port in large.items():
        limit = limits.get(key, NOT_READ)
        if of_port and not isinstance(limit, Gap):
            yield from _slow(case, ports[key], max(of_port, key=_one_way), limit)
    for (device, number), of_port in large.items():
        if (device, number) not in ports:
            raise UnreadableFact(f"--fabric names {device}:{number}, which this node does not have")
        if not of_port:
            tested = any(test.size_bytes for test in tests[device, number])
            why = f"was tested below {size_text(int(LEAST_BYTES.value))} only" if tested else "has no result"
            raise UnreadableFact(f"--fabric: {device}:{number} {why}")
        known(limits[device, number])
    for key, port in ports.items():
        if key not in tests and port.state is PortState.ACTIVE:
            raise UnreadableFact(f"--fabric has no test of {port.hca}:{port.port}")


def _one_way(test: LinkTest) -> float:
    return test.gbit_s / 2 if test.is_bidirectional else test.gbit_s


def link_of(node: NodeFacts, port: HcaPort) -> PciDevice | None:
    """Return the PCI device of the port's adapter, or None if the device is unknown."""
    bdf = next((nic.bdf for nic in known_or(node.nics, ()) if nic.name == port.hca), NOT_READ)
    return next((each for each in known_or(node.pci, ()) if each.bdf == bdf), None)


def limit_of(node: NodeFacts, port: HcaPort) -> float | Gap:
    """Return the highest rate that a port can carry in Gbit/s, or a Gap object if the rate is unknown.

    The result is the rate of the port, or the maximum rate of the adapter's PCIe link if this link is slower.
    """
    link, pci = link_of(node, port), {each.bdf: each for each in known_or(node.pci, ())}
    if link is None or isinstance(link.speed_max_gt_s, Gap) or isinstance(link.width_max, Gap):
        return Gap(f"the PCIe link of {port.hca} is not known, and it may be slower than the port")
    now = known_or(link.speed_gt_s, 0.0) * known_or(link.width, 0)
    above = [(each.speed_max_gt_s, each.width_max) for each in map(pci.get, link.parents) if each is not None]
    real = [
        (speed, lanes)
        for speed, lanes in above
        if not isinstance(speed, Gap) and not isinstance(lanes, Gap) and speed * lanes >= now
    ]  # an emulated bridge tells less than the link has
    speed_gt_s = min([link.speed_max_gt_s, *(speed for speed, _ in real)])
    lanes = min([link.width_max, *(lanes for _, lanes in real)])
    pcie_gbit_s = speed_gt_s * lanes * PCIE_SHARE.value
    return port.rate_gbit_s if isinstance(port.rate_gbit_s, Gap) else min(port.rate_gbit_s, pcie_gbit_s)


def _slow(case: Case, port: HcaPort, test: LinkTest, limit_gbit_s: float) -> Findings:
    reached = _one_way(test)
    if reached >= REACHED.value * limit_gbit_s:
        return
    of_what = "of the port's rate" if limit_gbit_s == port.rate_gbit_s else "that its PCIe link can carry"
    link = link_of(case.nodes[0], port)
    narrow = "" if link is None or link.width == link.width_max else f"; its PCIe link runs x{link.width}"
    yield fabric_test.finding(
        Severity.WARN,
        f"{case.nodes[0].host} {port.hca}:{port.port}",
        f"{test.program} reached {reached:.0f} of {limit_gbit_s:.0f} Gbit/s {of_what} ({reached / limit_gbit_s:.0%}), "
        f"without NCCL{narrow}",
        "repeat the test with `ib_write_bw -d DEVICE -q 4 -s 1048576 --report_gbits`, bound to the adapter's NUMA "
        "node. If the port stays slow, check the cable, the switch port and the adapter's PCIe width",
        Evidence("average", f"{test.gbit_s:.1f} Gbit/s at {size_text(test.size_bytes)}", "--fabric"),
        Evidence("port can carry", f"{limit_gbit_s:.0f} Gbit/s", "/sys/class/infiniband, /sys/bus/pci/devices"),
        parts=part_of_port(case.nodes[0], port.hca, port.port),
    )
