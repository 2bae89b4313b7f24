"""The facts of another machine: only a stand-in backend may play it, a rank for each of its chosen GPUs, on the CPU."""

from __future__ import annotations

import pytest

from preflight.errors import UsageError
from preflight.model.facts import NodeFacts, SoftwareFacts
from preflight.search.backend_choice import BackendChoice, choose_backend
from tests.node_facts import NO_NVML, TORCH, gpu_node, node

SIM = "simnccl@simnccl"


def played(
    facts: NodeFacts, backend: str | None = SIM, gpus: str | None = None, nproc: int | None = None,
    visible: str | None = None,
) -> BackendChoice:  # fmt: skip
    return choose_backend(backend, gpus, nproc, visible, facts, is_elsewhere=True)


def test_a_rank_stands_for_each_chosen_gpu_and_speaks_nccl_on_the_cpu() -> None:
    path = played(gpu_node(8), gpus="2,5")
    assert (path.backend, path.backend_module, path.dialect, path.world_size) == ("simnccl", "simnccl", "nccl", 2)
    assert [gpu.nvml_index for gpu in path.gpus] == [2, 5]
    assert (path.on_cpu, path.wants_gpus, path.cpu_path, path.blocked) == (True, True, False, "")


def test_without_a_choice_it_is_every_gpu_that_cuda_visible_devices_leaves() -> None:
    assert played(gpu_node(4)).world_size == 4
    assert [gpu.nvml_index for gpu in played(gpu_node(4), visible="3,1").gpus] == [3, 1]


def test_the_torch_of_the_other_machine_is_not_the_one_that_runs() -> None:
    assert played(gpu_node(2, software=SoftwareFacts("3.11", "0.1", TORCH))).blocked == ""


@pytest.mark.parametrize("backend", [None, "nccl", "gloo"])
def test_a_real_backend_would_run_here_and_prove_nothing_of_it(backend: str | None) -> None:
    with pytest.raises(UsageError, match="real backend"):
        played(gpu_node(2), backend)


@pytest.mark.parametrize(
    ("facts", "options", "words"),
    [
        (gpu_node(2), {"nproc": 2}, "--nproc"),
        (gpu_node(2), {"visible": ""}, "CUDA_VISIBLE_DEVICES"),
        (gpu_node(gpus=NO_NVML), {}, "not known"),
        (node(gpus=()), {}, "no GPU"),
    ],
)
def test_what_leaves_nothing_to_play_is_a_usage_error(facts: NodeFacts, options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        played(facts, **options)  # type: ignore[arg-type]
