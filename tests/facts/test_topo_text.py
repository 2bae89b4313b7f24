from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.facts.topo_facts import topology_facts
from preflight.facts.topo_tail import split_joined
from preflight.model.facts import Gap, Gpu, NodeFacts, known

LEGEND = "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
NICS = "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_bond_0\n"
TWO = """\
        GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    PIX     SYS     0-31,64-95      0               N/A
GPU1    NV18     X      SYS     PXB     32-63,96-127    1               N/A
NIC0    PIX     SYS      X      SYS
NIC1    SYS     PXB     SYS      X
"""
WHOLE = TWO + LEGEND + NICS


def _levels(facts: NodeFacts) -> dict[tuple[object, object], str | Gap]:
    found: dict[tuple[object, object], str | Gap] = {}
    found.update(((path.a, path.b), path.level) for path in known(facts.gpu_paths))
    found.update(((path.gpu, path.nic), path.level) for path in known(facts.nic_paths))
    return found


def _gpu(facts: NodeFacts, index: int) -> Gpu:
    return next(gpu for gpu in known(facts.gpus) if gpu.nvml_index == index)


def _reasons(facts: NodeFacts) -> list[str]:
    return [line.content.reason for line in facts.unread_lines if isinstance(line.content, Gap)]


TRUE = {
    (0, 1): "NV18",
    (0, "mlx5_0"): "PIX",
    (0, "mlx5_bond_0"): "SYS",
    (1, "mlx5_0"): "SYS",
    (1, "mlx5_bond_0"): "PXB",
}


def _assert_true(facts: NodeFacts) -> None:
    assert _levels(facts) == TRUE
    assert _reasons(facts) == []
    assert known(_gpu(facts, 1).cpu_affinity) == (*range(32, 64), *range(96, 128))
    assert _gpu(facts, 1).numa_node == 1


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        WHOLE.replace("\n", "\r\n"),
        "\ufeff" + WHOLE,
        "Here is my topology:\n\n```\n" + TWO + "```\nIt hangs: NCCL says nothing.\n" + LEGEND + NICS,
        WHOLE.lstrip(),
        "\n".join("> " + line for line in WHOLE.splitlines()),
        "\n".join("    " + line for line in WHOLE.splitlines()),
        "$ nvidia-smi topo -m\n\x1b[4m" + TWO.lstrip().replace("ID\n", "ID\x1b[0m\n", 1) + LEGEND + NICS,
        "\ufffd[4m" + TWO.lstrip().replace("ID\n", "ID\ufffd[0m\n", 1) + LEGEND + NICS,
        "^[[4m" + TWO.lstrip().replace("ID\n", "ID^[[0m\n", 1) + LEGEND + NICS,
        "[4m" + TWO.lstrip().replace("ID\n", "ID[0m\n", 1) + LEGEND + NICS,
        WHOLE.replace("NIC0    NIC1    CPU", "NIC0    NIC1CPU").replace("PIX     SYS     0-31", "PIX     SYS0-31"),
        WHOLE.replace("NIC0    NIC1", "NIC0NIC1").replace("PIX     SYS  ", "PIXSYS  ").replace("SYS     PXB", "SYSPXB"),
        WHOLE.replace("        GPU0    GPU1", "\tGPU0\tGPU1").replace("GPU0     X ", "GPU0\t X \t"),
        WHOLE.replace("0               N/A", "0N/A").replace("1               N/A", "1N/A"),
        WHOLE.replace("0-31,64-95      0 ", "0-31,64-950 ").replace("96-127    1 ", "96-1271 "),
        WHOLE.replace("\n", "\n\n"),
        WHOLE.replace(" ", "\u00a0"),
    ],
)  # fmt: skip
def test_pasting_changes_nothing_of_what_is_read(text: str) -> None:
    _assert_true(topology_facts(text))


@pytest.mark.parametrize("width", range(20, 90))
def test_lines_that_a_terminal_broke_are_joined(width: int) -> None:
    broken = [line[i : i + width] for line in TWO.splitlines() for i in range(0, len(line), width)]
    _assert_true(topology_facts("\n".join(broken) + "\n" + LEGEND + NICS))


def test_rows_in_a_text_without_a_legend_are_read_and_adapters_keep_their_numbers() -> None:
    facts = topology_facts(TWO)
    assert [nic.name for nic in known(facts.nics)] == ["NIC0", "NIC1"]


def test_an_old_column_set_has_the_adapters_own_names() -> None:
    text = (
        "\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\nGPU0\t X \tSOC\tPIX\tSOC\t0-11\nGPU1\tSOC\t X \tSOC\tPHB\t12-23\n"
    )
    facts = topology_facts(text)
    assert [nic.name for nic in known(facts.nics)] == ["mlx5_0", "mlx5_1"]
    assert _levels(facts)[0, 1] == "SOC"
    assert isinstance(_gpu(facts, 0).numa_node, Gap)


def test_a_matrix_that_is_not_symmetric_gives_both_ways_and_names_the_line() -> None:
    facts = topology_facts(WHOLE.replace("GPU1    NV18", "GPU1    NV17"))
    assert [(path.a, path.b, path.level) for path in known(facts.gpu_paths)] == [(0, 1, "NV18"), (1, 0, "NV17")]
    assert _reasons(facts) == ["line 3: GPU1 to GPU0 is NV17, but line 2 says NV18"]


def test_an_affinity_that_is_not_there_is_a_gap() -> None:
    facts = topology_facts(WHOLE.replace("0-31,64-95      0 ", "N/A             N/A "))
    assert isinstance(_gpu(facts, 0).cpu_affinity, Gap)
    assert isinstance(_gpu(facts, 0).numa_node, Gap)
    assert _gpu(facts, 1).numa_node == 1


def test_a_gpu_near_two_numa_nodes_has_both_and_no_single_one() -> None:
    gpu = _gpu(topology_facts(WHOLE.replace("0-31,64-95      0 ", "0-31,64-95      0-1 ")), 0)
    assert isinstance(gpu.numa_node, Gap)
    assert gpu.memory_affinity == (0, 1)


def test_the_memory_of_a_gpu_that_is_a_numa_node_is_read() -> None:
    assert _gpu(topology_facts(WHOLE.replace("0               N/A", "0               10")), 0).memory_numa_node == 10


def test_a_gpu_without_any_affinity_leaves_the_last_column_in_its_place() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    text += "GPU0\t X \tPHB\t\t\t\tN/A\nGPU1\tPHB\t X \t\t\t\tN/A\n"
    gpu = _gpu(topology_facts(text), 0)
    assert isinstance(gpu.cpu_affinity, Gap)
    assert gpu.memory_numa_node == Gap("nvidia-smi says N/A")


def test_titles_that_stand_there_twice_give_no_affinity() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tCPU Affinity\tNUMA Affinity\n"
    gpu = _gpu(topology_facts(f"{text}GPU0\t X \tNV18\t0-3\t0\t0-3\nGPU1\tNV18\t X \t4-7\t1\t2\t\n"), 0)
    assert gpu.cpu_affinity == gpu.numa_node == Gap("a title stands there twice")


def test_the_models_and_uuids_are_taken_where_the_paste_has_them_too() -> None:
    facts = topology_facts(
        "GPU 0: NVIDIA L20 (UUID: GPU-0a1b2c3d-0000-0000-0000-000000000000)\nGPU 1: NVIDIA A40\n" + TWO
    )
    assert (_gpu(facts, 0).name, _gpu(facts, 0).uuid) == ("NVIDIA L20", "GPU-0a1b2c3d-0000-0000-0000-000000000000")
    assert _gpu(facts, 1).name == "NVIDIA A40"


def test_an_unknown_word_is_named_with_its_line_and_does_not_become_a_connection() -> None:
    facts = topology_facts(WHOLE.replace("GPU1    NV18     X      SYS", "GPU1    NV18     X      ???"))
    assert _reasons(facts) == ["line 3: cell 3 of 4: '???' is no connection"]
    assert _levels(facts)[0, 1] == "NV18"
    assert _levels(facts)[1, "mlx5_0"] == "SYS"  # the adapter's own row tells


def test_a_row_keeps_its_name_if_the_next_line_is_joined_to_it() -> None:
    facts = topology_facts(WHOLE.replace("NIC1    SYS     PXB     SYS      X", "NIC1\n??? PXB"))
    assert "line 5: cell 1 of 4: '???' is no connection" in _reasons(facts)
    assert _levels(facts)[1, "mlx5_bond_0"] == "PXB"  # the GPU's own row tells


@pytest.mark.parametrize("text", ["", "\0", "no topology here", "GPU0", "GPU 0: NVIDIA L20\n", "[]", "GPU0 GPU0 x\n"])
def test_other_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(MalformedInput) as refused:
        topology_facts(text)
    assert "\n" not in str(refused.value)


@given(end=st.integers(min_value=100, max_value=len(WHOLE)))
def test_a_text_that_is_cut_anywhere_tells_nothing_that_the_whole_one_does_not(end: int) -> None:
    facts = topology_facts(WHOLE[:end])
    whole = topology_facts(WHOLE)
    names = {"NIC0": "mlx5_0", "NIC1": "mlx5_bond_0"}
    for (gpu, other), level in _levels(facts).items():
        key = (gpu, names.get(str(other), other))
        if not isinstance(level, Gap) and key in TRUE:
            assert level == TRUE[key]
    for gpu in known(facts.gpus):
        assert isinstance(gpu.cpu_affinity, Gap) or gpu.cpu_affinity == _gpu(whole, gpu.nvml_index).cpu_affinity
        assert isinstance(gpu.numa_node, Gap) or gpu.numa_node == _gpu(whole, gpu.nvml_index).numa_node


WORDS = st.sampled_from(
    ["GPU0", "GPU1", "NIC0", "X", "NV18", "PIX", "SYS", "N/A", "0-3", "\t", "\n", " ", "CPU Affinity", "NUMA Affinity",
     "GPU NUMA ID", "Legend:", "NIC0: mlx5_0", "\x1b[4m", "GPU99999", "NV", "-", ",", "0-99999999", "\x00"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    text=st.text(max_size=300) | st.lists(WORDS, max_size=60).map("".join) | st.lists(WORDS, max_size=60).map(" ".join)
)
def test_any_text_gives_facts_or_is_refused(text: str) -> None:
    try:
        topology_facts(text)
    except MalformedInput as error:
        assert "\n" not in str(error)


def test_a_gpu_whose_number_has_5000_digits_is_none() -> None:
    """Python's own int() refuses to read such a number."""
    digits = "9" * 5000
    with pytest.raises(MalformedInput, match="no line names the columns"):
        topology_facts(f"\tGPU0\tGPU{digits}\nGPU0\t X \tNV4\nGPU{digits}\tNV4\t X \n")
    _assert_true(topology_facts(f"GPU {digits}: NVIDIA H100\n{WHOLE}"))


def test_two_columns_in_one_word_are_parted_only_where_there_is_one_way() -> None:
    assert split_joined("0-47,96-1430") == ("0-47,96-143", "0")
    assert split_joined("0-470") is None
    assert split_joined("0-31,64-95") is None
