from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.model.facts import Gap, NodeFacts
from preflight.model.gpu import ComputeMode, GpuProcess, Mode, gpu_known_by
from preflight.show.console_writer import lines_of
from preflight.show.gpus import gpu_section, xid_section
from preflight.show.text import Style, width_of
from tests.gpus import NO_PAGES, PCIE, gpu, nvlink
from tests.node_facts import MIB, gpu_node, node

STYLE = Style(width=80)


def page(facts: NodeFacts) -> str:
    return "\n".join(lines_of(gpu_section(facts), STYLE))


def test_what_is_common_to_a_model_stands_once_and_each_gpu_has_a_row() -> None:
    text = page(gpu_node(8))
    assert text.count("NVIDIA H100 80GB HBM3") == 1
    assert "GPU 0-7  NVIDIA H100 80GB HBM3, compute capability 9.0, 80 GiB" in text
    assert text.count("x16 gen5  18 x 4.0") == 8
    assert "peer access (reported by the driver): ok for all pairs" in text


def test_an_odd_model_has_a_line_of_its_own() -> None:
    text = page(gpu_node(3, gpus=(gpu(0), gpu(1, name="NVIDIA A40"), gpu(2))))
    assert "GPU 0,2  NVIDIA H100" in text
    assert "GPU 1    NVIDIA A40" in text


def test_what_is_not_as_it_should_be_is_seen_in_the_row() -> None:
    busy = gpu(
        0, mig_mode=Mode.ENABLED, compute_mode=ComputeMode.EXCLUSIVE_PROCESS, utilization_percent=97,
        processes=(GpuProcess(1, MIB, "x", 0, is_ours=False),), throttle_reasons=("idle", "hw_slowdown"),
        pcie=replace(PCIE, width=8), nvlinks=tuple(nvlink(i, is_active=i != 3) for i in range(18)),
    )  # fmt: skip
    text = "\n".join(lines_of(gpu_section(gpu_node(1, gpus=(busy,))), Style(width=120)))
    for words in (
        "GPU 0  MIG, exclusive process, hw slowdown, 1 process, 97% busy",
        "below",
        "x8 of x16 gen5",
        "17 of 18 x 4.0",
    ):
        assert words in text


def test_a_gpu_without_nvlink_has_a_dash_and_one_that_is_unknown_a_question_mark() -> None:
    text = page(gpu_node(gpus=(gpu(0, nvlinks=()), gpu(1, nvlinks=NO_PAGES))))
    assert "x16 gen5  -  " in text
    assert "x16 gen5  ?  " in text


def test_of_a_pasted_topology_only_what_it_shows_is_printed() -> None:
    gpus = tuple(gpu_known_by(i, "not in the text", numa_node=i) for i in range(2))
    text = page(gpu_node(gpus=gpus, gpu_p2p=Gap("not in the text"), gpu_paths=()))
    assert "bdf" not in text
    assert "NUMA" in text


def test_where_the_matrix_shows_all_that_is_known_there_is_no_table() -> None:
    gpus = tuple(gpu_known_by(i, "not in the text", numa_node=i) for i in range(2))
    assert page(gpu_node(gpus=gpus, gpu_p2p=Gap("not in the text"))).strip() == ""


@pytest.mark.parametrize("facts", [node(gpus=()), node()])
def test_a_machine_without_gpus_says_so_in_one_line_at_most(facts: NodeFacts) -> None:
    assert page(facts).strip() in ("", "GPUs: none")


def test_the_newest_xid_lines_are_shown_and_the_others_counted() -> None:
    lines = tuple(f"NVRM: Xid (PCI:0000:1b:00): 79, number {i}" for i in range(7))
    text = "\n".join(lines_of(xid_section(gpu_node(1, xid_lines=lines)), STYLE))
    assert "2 older lines are not shown; the newest:" in text
    assert ["number 1" in text, "number 2" in text, "number 6" in text] == [False, True, True]
    assert xid_section(gpu_node(1)) == []


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(st.from_type(NodeFacts), st.integers(40, 120))
def test_any_gpus_fit_the_terminal(facts: NodeFacts, width: int) -> None:
    assert all(width_of(line) <= width for line in lines_of(gpu_section(facts), Style(width=width)))
