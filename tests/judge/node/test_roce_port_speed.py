"""The speed of a RoCE port, held against what it and the other end of its cable offer."""

from __future__ import annotations

import pytest

from preflight.judge.node.roce_port_speed import roce_port_speed
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Severity
from preflight.model.hca import NicKind, PortSpeeds, PortState
from tests.judge.findings import applies_not, on_gpus, only, skips
from tests.node_facts import gpu_case, gpu_node
from tests.topology import nic, port, roce_port

FIXED = Gap("the ends of the link did not negotiate a speed")


def node_with(*ports: tuple[float, int, int | Gap], driver: str = "bnxt_en") -> NodeFacts:
    """Return a node with a RoCE port for each speed, with the fastest of the port and of both ends.

    The rate in /sys/class/infiniband is wrong, as it is on some kernels.
    """
    return gpu_node(
        nics=tuple(nic(f"mlx5_{i}", kind=NicKind.ROCE, driver=driver) for i in range(len(ports))),
        hca_ports=tuple(
            roce_port(f"mlx5_{i}", rate_gbit_s=40.0, speeds=(PortSpeeds(now, own, both),))
            for i, (now, own, both) in enumerate(ports)
        ),
    )


@pytest.mark.parametrize(("own", "both"), [(400, 400), (400, 200), (200, 200)])
def test_a_link_below_what_both_ends_offer_is_a_warning(own: int, both: int) -> None:
    finding = only(on_gpus(roce_port_speed, node_with((100.0, own, both), (both, both, both))))
    assert finding.severity is Severity.WARN
    assert f"runs at 100 Gbit/s, but both ends of its cable offer {both} Gbit/s" in finding.problem


def test_what_mlx5_says_of_the_other_end_accuses_nobody() -> None:
    finding = only(on_gpus(roce_port_speed, node_with((100.0, 200, 200), (200.0, 200, 200), driver="mlx5_core")))
    assert finding.severity is Severity.INFO and "the peer's offer is not known" in finding.problem


@pytest.mark.parametrize(("both", "why"), [(200, "offer at most 200"), (0, "not known"), (FIXED, "not known")])
def test_a_port_that_could_do_more_is_only_noted(both: int | Gap, why: str) -> None:
    finding = only(on_gpus(roce_port_speed, node_with((200.0, 400, both), (200.0, 400, both), (400.0, 400, both))))
    assert finding.severity is Severity.INFO
    assert finding.subject.endswith("mlx5_0:1, mlx5_1:1") and why in finding.problem


@pytest.mark.parametrize("both", [100, 400, FIXED])
def test_a_port_at_its_fastest_is_fine_whatever_was_offered(both: int | Gap) -> None:
    assert on_gpus(roce_port_speed, node_with((400.0, 400, both))) == ()


def test_infiniband_and_ports_that_are_down_are_not_judged_and_what_was_not_read_is_said() -> None:
    down = roce_port(state=PortState.DOWN, rate_gbit_s=10.0, speeds=(PortSpeeds(10.0, 400, 400),))
    for ports in ((port("mlx5_0"),), (down,)):
        assert applies_not(roce_port_speed, gpu_case(nodes=(gpu_node(nics=(nic(),), hca_ports=ports),)))
    unread = gpu_node(
        nics=(nic(kind=NicKind.ROCE),), hca_ports=(roce_port(speeds=Gap("speeds of eth0: not supported")),)
    )
    assert "not supported" in skips(roce_port_speed, gpu_case(nodes=(unread,)))[0].reason


def test_a_state_that_could_not_be_read_is_not_called_inactive() -> None:
    unread = gpu_node(nics=(nic(kind=NicKind.ROCE),), hca_ports=(roce_port(state=Gap("no such file")),))
    assert "no such file" in skips(roce_port_speed, gpu_case(nodes=(unread,)))[0].reason
