from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.model.facts import GpuPath, NodeFacts, known
from preflight.model.gpu import GpuProcess, Mode
from preflight.search.gpus.gpu_set_advice import Boundary, advise_gpus
from preflight.search.gpus.locality import cost
from tests.node_facts import env, gpu_node

LEVELS = ["NV18", "NV12", "NV4", "NV1", "PIX", "PXB", "PHB", "NODE", "SYS"]


def _node(count: int, levels: dict[tuple[int, int], str], numa: list[int] | None = None) -> NodeFacts:
    node = gpu_node(count)
    gpus = tuple(
        replace(gpu, numa_node=(numa or [0] * count)[gpu.nvml_index], processes=()) for gpu in known(node.gpus)
    )
    return replace(node, gpus=gpus, gpu_paths=tuple(GpuPath(a, b, level) for (a, b), level in levels.items()))


def _islands(count: int, size: int, inside: str, outside: str) -> NodeFacts:
    pairs = {(a, b): inside if a // size == b // size else outside for a, b in combinations(range(count), 2)}
    return _node(count, pairs, [i // size for i in range(count)])


def _busy(node: NodeFacts, *indices: int) -> NodeFacts:
    process = GpuProcess(1, 1, "python", 1000, False)
    gpus = (replace(g, processes=(process,)) if g.nvml_index in indices else g for g in known(node.gpus))
    return replace(node, gpus=tuple(gpus))


def test_bridged_pairs_are_proposed_before_neighbours_across_pcie() -> None:
    advice = advise_gpus(_islands(4, 2, "NV4", "SYS"), (1, 2))
    assert [crossing.boundary for crossing in advice.crossings] == [Boundary.NVLINK, Boundary.NUMA]
    assert advice.better == (0, 1)
    assert "NV4, not SYS" in advice.reason


def test_a_busy_gpu_is_not_proposed_but_a_chosen_one_is_kept() -> None:
    node = _busy(_islands(6, 2, "NV4", "SYS"), 0)
    assert advise_gpus(node, (1, 2)).better == (2, 3)
    assert advise_gpus(_busy(node, 2, 4, 5), (1, 2)).better == (2, 3)


def test_a_gpu_in_mig_mode_or_hidden_is_not_proposed() -> None:
    node = _islands(6, 2, "NV4", "SYS")
    mig = tuple(replace(gpu, mig_mode=Mode.ENABLED) if gpu.nvml_index == 0 else gpu for gpu in known(node.gpus))
    assert advise_gpus(replace(node, gpus=mig), (1, 2)).better == (2, 3)
    given = replace(node, environment=env(CUDA_VISIBLE_DEVICES="1,2,3,4"))
    assert advise_gpus(given, (1, 4)).better == (2, 3)


def test_two_models_in_a_set_are_said_and_left_if_possible() -> None:
    node = _islands(4, 4, "PHB", "SYS")
    mixed = tuple(replace(gpu, name="NVIDIA L20") if gpu.nvml_index > 1 else gpu for gpu in known(node.gpus))
    advice = advise_gpus(replace(node, gpus=mixed), (1, 2))
    assert advice.crossings[0].boundary is Boundary.MODEL
    assert advice.better in ((0, 1), (2, 3))


def test_a_switch_that_joins_all_makes_pcie_switches_no_matter() -> None:
    advice = advise_gpus(_islands(8, 4, "NV18", "NV18"), (0, 1, 2, 3))
    assert advice.crossings == ()
    assert Boundary.NUMA in advice.within


def test_more_nvlinks_are_nearer_than_fewer_and_any_nvlink_than_pcie() -> None:
    costs = [cost(level) for level in LEVELS]
    assert costs == sorted(costs)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 7))
def test_a_better_set_is_as_large_and_never_slower_and_has_no_better_one_itself(
    data: st.DataObject, count: int
) -> None:
    pairs = {pair: data.draw(st.sampled_from(LEVELS)) for pair in combinations(range(count), 2)}
    node = _node(count, pairs, [data.draw(st.integers(0, 1)) for _ in range(count)])
    chosen = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    advice = advise_gpus(node, sorted(chosen))
    if advice.better:
        assert len(advice.better) == len(chosen)
        assert cost(advice.better_worst) <= cost(advice.worst)
        assert advise_gpus(node, advice.better).better == ()
        assert advice.reason


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_order_in_which_gpus_are_named_does_not_matter(data: st.DataObject) -> None:
    node = _islands(8, 4, "PIX", "SYS")
    chosen = data.draw(st.permutations([2, 3, 4, 5]))
    assert advise_gpus(node, chosen).better == advise_gpus(node, (2, 3, 4, 5)).better == (0, 1, 2, 3)


def test_a_large_machine_is_answered_without_trying_every_set() -> None:
    node = _islands(32, 8, "NV18", "SYS")
    assert advise_gpus(node, tuple(range(4, 12))).better == tuple(range(8))
