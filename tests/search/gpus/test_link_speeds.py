from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import NotApplicable, UnreadableFact
from preflight.model.collective import Collective
from preflight.model.facts import Gap, GpuPath, NodeFacts, known
from preflight.model.gpu import LinkPeer, NvLink, PcieLink
from preflight.model.links import Expected
from preflight.search.gpus.link_speeds import (
    expected_busbw,
    expected_of_trials,
    grown,
    nvlink_gb_s,
    pcie_gb_s,
)
from preflight.system.links import load_links
from tests.node_facts import GIB, MIB, gpu_node, trial

LINKS = load_links()
LARGE = 8 * GIB
NO = Gap("not told")


def _nvlinks(count: int, generation: str) -> tuple[NvLink, ...]:
    return tuple(NvLink(i, True, generation, LinkPeer.SWITCH, NO, 0, 0, 0) for i in range(count))


def _node(count: int, level: str, capability: str = "9.0", **values: Any) -> NodeFacts:
    """Return GPUs that all reach each other alike."""
    made = gpu_node(count)
    gpus = tuple(replace(gpu, compute_capability=capability, **values) for gpu in known(made.gpus))
    paths = tuple(GpuPath(a, b, level) for a in range(count) for b in range(a + 1, count))
    return replace(made, gpus=gpus, gpu_paths=paths)


def _hopper(count: int, links: int = 18) -> NodeFacts:
    return _node(count, f"NV{links}", nvlinks=_nvlinks(links, "4.0"))


def _pcie(count: int, generation: int = 4, width: int = 16) -> NodeFacts:
    return _node(count, "SYS", "8.9", pcie=PcieLink(1, generation, generation, width, 16, 0), nvlinks=())


def _expect(node: NodeFacts, collective: Collective = Collective.ALL_REDUCE, size_bytes: int = LARGE) -> Expected:
    return expected_busbw(LINKS, node, range(len(known(node.gpus))), collective, size_bytes)


def test_every_row_has_a_source_and_every_rate_is_positive() -> None:
    for rows in (LINKS.nvlink, LINKS.pcie, LINKS.nvls, LINKS.reach, LINKS.curve):
        assert rows
        assert all(row.source for row in rows)
    assert all(0 < row.low < row.high < 1.2 for row in LINKS.reach)


# Published figures of healthy machines (facts 8.4): the table must call each of them healthy.
@pytest.mark.parametrize(
    ("node", "collective", "busbw"),
    [
        (_hopper(8), Collective.ALL_REDUCE, 482.3),
        (_hopper(5), Collective.ALL_REDUCE, 414.2),
        (_hopper(4), Collective.ALL_REDUCE, 363.3),
        (_hopper(8), Collective.ALL_GATHER, 361.4),
        (_node(8, "NV12", "8.0", nvlinks=_nvlinks(12, "3.1")), Collective.ALL_REDUCE, 234.9),
        (_node(8, "NV18", "10.0", nvlinks=_nvlinks(18, "5.0")), Collective.ALL_REDUCE, 838.0),
        (_node(5, "NV18", "10.0", nvlinks=_nvlinks(18, "5.0")), Collective.ALL_REDUCE, 677.8),
        (_pcie(8, 5), Collective.ALL_REDUCE, 28.0),
        (_pcie(6, 4), Collective.ALL_REDUCE, 24.5),
    ],
)
def test_published_figures_of_healthy_machines_are_healthy(
    node: NodeFacts, collective: Collective, busbw: float
) -> None:
    expected = _expect(node, collective)
    assert expected.low_gb_s <= busbw <= expected.high_gb_s


def test_nvls_applies_to_all_reduce_above_a_number_of_gpus_only() -> None:
    assert _expect(_hopper(8)).path == "nvls"
    assert _expect(_hopper(4)).path == "nvlink"
    assert _expect(_hopper(8), Collective.ALL_GATHER).path == "nvlink"


def test_a_mesh_without_a_switch_uses_the_links_of_all_peers_together() -> None:
    mesh = _node(4, "NV4", "8.0", nvlinks=_nvlinks(12, "3.1"))
    assert _expect(mesh).limit_gb_s == 300


def test_two_bridged_pairs_are_joined_by_pcie_only() -> None:
    pcie = PcieLink(4, 4, 4, 16, 16, 0)
    node = _node(4, "SYS", "8.0", nvlinks=_nvlinks(4, "3.1"), pcie=pcie)
    paths = tuple(
        replace(path, level="NV4") if path.b - path.a == 1 and path.a % 2 == 0 else path
        for path in known(node.gpu_paths)
    )
    assert _expect(replace(node, gpu_paths=paths)).path == "pcie"


def test_the_formula_says_in_words_what_was_multiplied() -> None:
    formula = _expect(_hopper(8)).formula
    assert "18 NVLinks 4.0 x 25 GB/s = 450 GB/s one way" in formula
    assert "NVLS applies" in formula
    assert "PCIe 4.0 x8 = 15.8 GB/s" in _expect(_pcie(2, 4, 8)).formula


def test_the_consumer_bridge_is_slower_than_the_same_generation_on_servers() -> None:
    assert nvlink_gb_s(LINKS, "3.1", "8.6") < nvlink_gb_s(LINKS, "3.1", "8.0")


@pytest.mark.parametrize(
    "node", [_node(2, "NV9", nvlinks=_nvlinks(9, "9.0")), _node(2, "NV4", nvlinks=Gap("NotSupported"))]
)
def test_what_is_not_known_is_said_and_not_guessed(node: NodeFacts) -> None:
    with pytest.raises(UnreadableFact):
        _expect(node)


def test_a_single_gpu_has_nothing_to_be_held_against() -> None:
    with pytest.raises(NotApplicable):
        _expect(gpu_node(1))


@given(st.integers(1, 17), st.integers(2, 8))
def test_more_links_never_carry_less(links: int, count: int) -> None:
    assert _expect(_hopper(count, links)).limit_gb_s <= _expect(_hopper(count, links + 1)).limit_gb_s


@given(st.integers(1, 5), st.sampled_from([1, 2, 4, 8]), st.integers(2, 8))
def test_more_lanes_and_newer_generations_never_carry_less(generation: int, width: int, count: int) -> None:
    limit = _expect(_pcie(count, generation, width)).limit_gb_s
    assert limit <= _expect(_pcie(count, generation, 2 * width)).limit_gb_s
    assert limit <= _expect(_pcie(count, generation + 1, width)).limit_gb_s
    assert limit == pytest.approx(pcie_gb_s(LINKS, generation, width))


@given(st.integers(8, 1 << 34), st.floats(1.01, 100))
def test_larger_messages_are_never_expected_to_be_slower(size_bytes: int, factor: float) -> None:
    small, large = (_expect(_hopper(8), size_bytes=size) for size in (size_bytes, int(size_bytes * factor) + 1))
    assert small.low_gb_s <= large.low_gb_s
    assert small.low_gb_s < small.high_gb_s


@given(st.integers(1, 1 << 40), st.floats(0.1, 1000), st.integers(2, 64))
def test_a_message_never_reaches_more_than_the_whole(size_bytes: int, limit: float, gpus: int) -> None:
    assert 0 < grown(size_bytes, limit, gpus, 5.0) <= 1


def test_the_published_size_curve_is_healthy() -> None:
    for size_bytes, busbw in ((16 * MIB, 234.0), (268_435_456, 423.0)):
        expected = _expect(_hopper(8), size_bytes=size_bytes)
        assert expected.low_gb_s <= busbw <= expected.high_gb_s


def test_what_is_expected_of_trials_is_one_range_per_point_or_the_reason_why_not() -> None:
    node, trials = gpu_node(8), (trial(world_size=8), trial("other", world_size=8))
    expected = expected_of_trials(LINKS, node, tuple(range(8)), trials)
    assert isinstance(expected, tuple)
    assert [(each.what, each.size_bytes) for each in expected] == [
        (collective, size) for collective in ("all_reduce", "all_gather") for size in (8, 1 << 20)
    ]
    assert expected_of_trials(LINKS, node, (), trials) == Gap(
        "no GPU was tested, and the expected speed of a CPU path is unknown"
    )
    solo = expected_of_trials(LINKS, node, (0,), trials)
    assert isinstance(solo, Gap) and "single GPU" in solo.reason
