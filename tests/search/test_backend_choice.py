"""gloo is never a disguise: the CPU path is taken only where nothing at all shows an NVIDIA GPU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UsageError
from preflight.model.facts import DeviceNodes, Gap, NodeFacts, NvidiaPciDevice, OtherDevice, SoftwareFacts
from preflight.search.backend_choice import MOST_RANKS, BackendChoice, choose_backend, parse_backend
from tests.gpus import bdf
from tests.node_facts import NO_NVML, TORCH, gpu_node, node

ON_THE_BUS = (NvidiaPciDevice(bdf(0), "0x2330", Gap("no driver"), 0),)
NO_MODULE = Gap("the nvidia module is not loaded")


def path(
    facts: NodeFacts, backend: str | None = None, gpus: str | None = None, nproc: int | None = None,
    visible: str | None = None,
) -> BackendChoice:  # fmt: skip
    return choose_backend(backend, gpus, nproc, visible, facts)


def test_a_machine_without_any_trace_of_a_gpu_takes_the_cpu_path_with_two_ranks() -> None:
    taken = path(node())
    assert (taken.backend, taken.world_size, taken.cpu_path, taken.wants_gpus) == ("gloo", 2, True, False)
    assert taken.blocked == ""
    assert path(node(), nproc=4).world_size == 4


@pytest.mark.parametrize(
    "facts",
    [
        node(nvidia_pci=ON_THE_BUS),
        node(device_nodes=DeviceNodes(("nvidiactl",), NO_MODULE)),
        gpu_node(gpus=NO_NVML),
        gpu_node(gpus=()),
        gpu_node(software=SoftwareFacts("3.11", "0.1", TORCH)),
    ],
    ids=["on the bus", "in /dev", "NVML fails", "NVML lists none", "torch without CUDA"],
)
def test_a_gpu_that_does_not_work_blocks_the_run_and_never_turns_it_into_gloo(facts: NodeFacts) -> None:
    taken = path(facts)
    assert (taken.backend, taken.cpu_path, taken.wants_gpus) == ("nccl", False, True)
    assert taken.blocked


@pytest.mark.parametrize("backend", [None, "nccl"])
@pytest.mark.parametrize("facts", [node(nvidia_pci=Gap("EIO")), node(device_nodes=Gap("EACCES"))], ids=["bus", "dev"])
def test_a_bus_that_could_not_be_read_is_not_a_bus_without_gpus(facts: NodeFacts, backend: str | None) -> None:
    taken = path(facts, backend=backend)
    assert (taken.backend, taken.cpu_path, taken.wants_gpus) == ("nccl", False, True)
    assert "could not be read" in taken.blocked


def test_a_node_with_the_gpus_of_another_maker_is_blocked_unless_it_has_nvidias_too() -> None:
    others = (OtherDevice("AMD GPU", bdf(0), "1002:74a1", computes=True),)
    taken = path(node(other_devices=others), nproc=2)
    assert (taken.cpu_path, taken.wants_gpus) == (False, True)
    assert "1 AMD GPU, but preflight tests NVIDIA GPUs only" in taken.blocked
    assert path(gpu_node(other_devices=others)) == path(gpu_node())


def test_gloo_that_was_asked_for_runs_on_a_machine_with_gpus_and_is_no_cpu_path() -> None:
    taken = path(gpu_node(), backend="gloo", nproc=3)
    assert (taken.backend, taken.world_size, taken.cpu_path, taken.blocked) == ("gloo", 3, False, "")


def test_working_gpus_get_a_rank_each() -> None:
    taken = path(gpu_node(4))
    assert (taken.backend, taken.world_size, taken.blocked) == ("nccl", 4, "")
    assert [gpu.nvml_index for gpu in path(gpu_node(4), gpus="3,1").gpus] == [3, 1]
    assert path(gpu_node(4), visible="2").world_size == 1


def test_gpus_that_are_lost_do_not_hide_those_that_work() -> None:
    lost = gpu_node(8, gpus=gpu_node(7).gpus)
    assert path(lost).world_size == 7


def test_gpus_seen_by_nvml_alone_are_gpus() -> None:
    assert path(gpu_node(2, nvidia_pci=(), device_nodes=DeviceNodes((), NO_MODULE))).backend == "nccl"


@pytest.mark.parametrize(
    ("facts", "options", "what"),
    [
        (node(), {"gpus": "0"}, "--gpus 0: this machine shows no NVIDIA GPU"),
        (node(), {"backend": "nccl"}, "--backend nccl: this machine shows no NVIDIA GPU"),
        (gpu_node(), {"nproc": 2}, "--nproc: only for backends that need no GPU"),
        (node(), {"backend": "nccl", "nproc": 2}, "--nproc: only for backends"),
        (gpu_node(), {"backend": "gloo", "gpus": "0"}, "leave out --gpus or --backend"),
        (gpu_node(), {"visible": ""}, "hides every GPU"),
        (gpu_node(), {"gpus": "5"}, "there is no GPU 5"),
        (node(), {"nproc": 0}, "give 1 to 256 ranks"),
        (node(), {"nproc": MOST_RANKS + 1}, "give 1 to 256 ranks"),
        (node(), {"backend": ""}, "--backend"),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(facts: NodeFacts, options: dict[str, object], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        path(facts, **options)  # type: ignore[arg-type]


def test_a_backend_of_a_module_is_named_with_it() -> None:
    assert parse_backend("simnccl@simnccl") == ("simnccl", "simnccl")
    assert parse_backend("ucc@torch_ucc.plugin") == ("ucc", "torch_ucc.plugin")
    assert parse_backend("nccl") == ("nccl", "")
    taken = path(gpu_node(), backend="simnccl@simnccl", nproc=4)
    assert (taken.backend, taken.backend_module, taken.world_size) == ("simnccl", "simnccl", 4)


@given(st.text(max_size=40) | st.from_regex(r"[a-z]{1,5}@?[a-z._]{0,9}\n?"))
def test_any_backend_text_gives_a_name_or_a_usage_error(text: str) -> None:
    try:
        name, module = parse_backend(text)
    except UsageError as error:
        assert str(error).startswith("--backend")
    else:
        assert name + (f"@{module}" if module else "") == text
        assert name in ("nccl", "gloo") or module


FACTS = st.sampled_from(
    [node(), gpu_node(), node(nvidia_pci=Gap("x")), node(device_nodes=Gap("x")), gpu_node(gpus=NO_NVML)]
)
OPTION = st.none() | st.sampled_from(["", "0", "0,1", "9", "gloo", "nccl", "x@y"])


@given(FACTS, OPTION, OPTION, st.none() | st.integers(-1, 300), OPTION)
def test_whatever_the_options_the_cpu_path_is_taken_only_without_gpus_and_unasked(
    facts: NodeFacts, backend: str | None, gpus: str | None, nproc: int | None, visible: str | None
) -> None:
    try:
        taken = path(facts, backend, gpus, nproc, visible)
    except UsageError:
        return
    assert taken.cpu_path <= (facts == node() and backend is None and gpus is None)
    assert (taken.backend == "gloo") <= (taken.cpu_path or backend == "gloo")
    assert bool(taken.blocked) != bool(taken.world_size)
