"""What is known of a node's GPUs decides what may be tried; what could not be read rules nothing out."""

from __future__ import annotations

import pytest

from preflight.model.gap import Gap
from preflight.model.gpu import Fabric, FabricState
from preflight.search.settings.node_view import NodeView
from tests.gpus import gpu
from tests.node_facts import gpu_node


@pytest.mark.parametrize(
    ("states", "may_be"),
    [
        ((FabricState.NOT_SUPPORTED, FabricState.NOT_SUPPORTED), False),
        ((FabricState.NOT_SUPPORTED, FabricState.COMPLETED), True),
        ((FabricState.NOT_SUPPORTED, None), True),
        ((), True),
    ],
)
def test_a_gpu_may_belong_to_a_fabric_unless_all_say_that_they_know_none(
    states: tuple[FabricState | None, ...], may_be: bool
) -> None:
    gpus = tuple(
        gpu(index, fabric=Gap("not asked") if state is None else Fabric(state, "", ()))
        for index, state in enumerate(states)
    )
    assert NodeView(gpu_node(2), gpus, None).may_be_fabric() is may_be
