from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UsageError
from preflight.model.facts import ContainerKind, DeviceNodes, DriverFacts, NodeFacts, known
from preflight.model.gpu import Mode, UnreadableGpu
from preflight.search.gpus.gpu_set import choose_gpus, closed_gpus, visible_gpus
from tests.gpus import gpu
from tests.node_facts import SYSTEM, gpu_node

ALL = tuple(gpu(i) for i in range(8))


def indices(text: str | None, visible: str | None = None) -> list[int]:
    return [each.nvml_index for each in choose_gpus(text, visible, ALL)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6,7", [6, 7]),
        ("7,6", [7, 6]),
        ("0-3", [0, 1, 2, 3]),
        ("0-1,5, 7", [0, 1, 5, 7]),
        ("GPU-00000004", [4]),
        ("GPU-00000003,1", [3, 1]),
    ],
)
def test_indices_ranges_and_uuids_name_gpus_in_the_order_given(text: str, expected: list[int]) -> None:
    assert indices(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,1", "named twice"),
        ("0-2,2", "named twice"),
        ("8", "there is no GPU 8; NVML lists 0, 1, 2"),
        ("6-9", "there is no GPU 8"),
        ("3-1", "no range"),
        ("", "names no GPU"),
        ("1,", "names no GPU"),
        ("GPU-0000", "start of 8 UUIDs"),
        ("GPU-ff", "names no GPU"),
        ("MIG-1", "names no GPU"),
        ("all", "names no GPU"),
        ("-1", "names no GPU"),
    ],
)
def test_what_names_no_gpu_is_an_error_that_says_why(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        indices(text)


def test_a_gpu_that_the_environment_hides_is_an_error() -> None:
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES=0,1 hides GPU 2"):
        indices("1,2", "0,1")


def test_a_gpu_cut_into_instances_is_an_error_with_the_way_back() -> None:
    gpus = (gpu(0), gpu(1, mig_mode=Mode.ENABLED))
    with pytest.raises(UsageError, match="nvidia-smi -i 1 -mig 0"):
        choose_gpus("0,1", None, gpus)
    assert choose_gpus("0", None, gpus) == gpus[:1]


def chosen(text: str, node: NodeFacts) -> None:
    assert isinstance(node.gpus, tuple)
    choose_gpus(text, None, node.gpus, node)


def test_a_gpu_that_nvml_counts_and_may_not_open_is_an_error_with_its_reason() -> None:
    driver = DriverFacts("580", "13.0", (UnreadableGpu(2, "NVMLError_NoPermission: this process may not use it"),))
    with pytest.raises(UsageError, match="GPU 2 can't be opened by this process: NVMLError_NoPermission"):
        chosen("0-2", gpu_node(2, driver=driver))


def test_a_gpu_whose_device_file_is_kept_back_is_an_error() -> None:
    node = gpu_node(3, device_nodes=DeviceNodes(("nvidiactl", "nvidia0", "nvidia2"), "580"))
    assert list(closed_gpus(node)) == [1]
    for text in ("1", "GPU-00000001"):
        with pytest.raises(UsageError, match="/dev/nvidia1 is not there"):
            chosen(text, node)


def test_in_a_container_only_the_gpus_that_it_was_given_are_used_and_elsewhere_a_closed_one_stays_a_fault() -> None:
    kept_back = DeviceNodes(("nvidiactl", "nvidia0", "nvidia2"), "580")
    for container, expected in ((ContainerKind.DOCKER, [0, 2]), (ContainerKind.NONE, [0, 1, 2])):
        node = gpu_node(3, device_nodes=kept_back, system=replace(SYSTEM, container=container))
        assert [each.nvml_index for each in choose_gpus(None, None, known(node.gpus), node)] == expected


def test_where_nvml_lists_fewer_than_the_bus_the_error_says_so() -> None:
    with pytest.raises(UsageError, match="NVML lists 0, 1; 8 are on the PCI bus"):
        chosen("4", gpu_node(8, gpus=(gpu(0), gpu(1))))


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("", []),
        ("2,0", [2, 0]),
        ("0,2,-1,1", [0, 2]),
        ("NoDevFiles", []),
        ("0,0", []),
        ("GPU-00000005,1", [5]),
        ("MIG-x,1", []),
    ],
)
def test_without_gpus_named_the_environment_decides_as_cuda_would(visible: str | None, expected: list[int]) -> None:
    assert [each.nvml_index for each in visible_gpus(visible, ALL)] == expected
    assert indices(None, visible) == expected


@given(st.text(alphabet="0123456789-,GPU abc"), st.none() | st.text(alphabet="0123456789,-GPU"))
def test_any_text_names_gpus_once_each_or_is_a_usage_error(text: str, visible: str | None) -> None:
    with suppress(UsageError):
        named = indices(text, visible)
        assert len(set(named)) == len(named) > 0
