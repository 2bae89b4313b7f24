from __future__ import annotations

from typing import Any

import pytest

from preflight.judge.run.checkpoint_shared_storage import shared_storage
from preflight.model.finding import Blame, Severity
from preflight.model.network_survey import PathEnd
from preflight.model.storage import NodeStorage, SharedStorage
from tests.judge.findings import found, only
from tests.node_facts import case, node
from tests.search.ways import between, nodes


def stored(**second: Any) -> Any:
    seen = (NodeStorage(0, "n0", 1), NodeStorage(1, "n1", 0, **second))
    storage = SharedStorage("/ckpt", 64 << 20, seen, 1.0, 1.0)
    ways = between(nodes(2, "eth0"), lambda _: PathEnd.OK, storage=storage)
    return case(nodes=(node(host="n0"), node(host="n1")), between=ways)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (
            {"write_problem": "read-only file system", "is_read_only": True},
            "these nodes can't write there, so the checkpoint shards",
        ),
        ({"write_problem": "no space left on device"}, "these nodes can't write there"),
        ({"read_problem": "it can't be read", "is_missing": True}, "do not share"),
        ({"read_problem": "3.0 s after", "is_stale": True}, "old content"),
        ({"read_problem": "it holds other data"}, "can't read another node's file"),
    ],
)
def test_what_is_wrong_is_named_with_the_node_that_sees_it(seen: dict[str, Any], told: str) -> None:
    finding = only(found(shared_storage, stored(**seen)))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.CONFIGURATION)
    assert finding.subject == "/ckpt on n1"
    assert told in finding.problem


def test_a_directory_that_all_share_and_one_that_nobody_asked_for_are_silent() -> None:
    assert found(shared_storage, stored()) == ()
    assert found(shared_storage, case(between=between(nodes(2, "eth0"), lambda _: PathEnd.OK))) == ()
