from __future__ import annotations

import pytest

from preflight.errors import UsageError
from preflight.model.facts import Gap, SoftwareFacts, TorchFacts
from preflight.search.backend_choice import choose_backend
from tests.gpus import gpu
from tests.node_facts import NO_CUDA, gpu_node


def test_ranks_are_not_started_on_a_gpu_that_they_cannot_be_tied_to() -> None:
    nameless = gpu_node(gpus=(gpu(0), gpu(1, uuid=Gap("the call hangs"))))
    path = choose_backend(None, None, None, None, nameless)
    assert (path.backend, path.gpus) == ("nccl", ())
    assert path.blocked == "the UUID of GPU 1 could not be read: the call hangs"
    assert choose_backend(None, "0", None, None, nameless).blocked == ""


def test_the_gpus_are_those_asked_for_one_rank_each() -> None:
    path = choose_backend(None, "3,1", None, None, gpu_node(4))
    assert [each.nvml_index for each in path.gpus] == [3, 1]
    assert path.world_size == 2


def test_naming_a_gpu_that_is_not_there_is_an_error_even_where_torch_has_no_cuda() -> None:
    torch = TorchFacts("2.13.0+cpu", NO_CUDA, NO_CUDA, "/venv/torch")
    node = gpu_node(2, software=SoftwareFacts("3.11.7", "0.1.0", torch))
    with pytest.raises(UsageError, match="there is no GPU 9"):
        choose_backend(None, "9", None, None, node)
    assert "without CUDA" in choose_backend(None, "1", None, None, node).blocked
