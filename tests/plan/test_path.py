from __future__ import annotations

from preflight.model.facts import Gap
from preflight.plan.path import choose_path
from tests.facts import gpu_node
from tests.gpus import gpu


def test_ranks_are_not_started_on_a_gpu_that_they_cannot_be_tied_to() -> None:
    nameless = gpu_node(gpus=(gpu(0), gpu(1, uuid=Gap("the call hangs"))))
    path = choose_path(None, None, None, None, nameless)
    assert (path.backend, path.gpus) == ("nccl", ())
    assert path.blocked == "the UUID of GPU 1 could not be read: the call hangs"
    assert choose_path(None, "0", None, None, nameless).blocked == ""


def test_the_gpus_are_those_asked_for_one_rank_each() -> None:
    path = choose_path(None, "3,1", None, None, gpu_node(4))
    assert [each.nvml_index for each in path.gpus] == [3, 1]
    assert path.world_size == 2
