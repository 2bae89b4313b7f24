"""What a node's RDMA ports counted during a trial: only what grew, and nothing if a reading is missing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from preflight.model.codec import encode
from preflight.model.hca import PortCounter, PortErrors
from preflight.model.run_spec import Assignment, Backend, RankGpus, StageLimits, StorePlace
from preflight.model.trial import RankEnd
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.system.machine import Json, Tree
from preflight.trial.rank.outcome import PORT_ERRORS, trial_result
from preflight.trial.rank.port_errors import port_errors_between, port_errors_now
from tests.sysroot import build

BEFORE = {"mlx5_0:1": {"link_downed": 3, "symbol_error": 0}, "mlx5_1:1": {"symbol_error": 5}}


def test_what_grew_is_told_and_what_stayed_fell_or_came_new_is_not() -> None:
    after = {
        "mlx5_0:1": {"link_downed": 4, "symbol_error": 0, "local_ack_timeout_err": 9},
        "mlx5_1:1": {"symbol_error": 2},
        "mlx5_2:1": {"symbol_error": 7},
    }
    went_down = {"port": "mlx5_0:1", "counters": [{"name": "link_downed", "value": 1}]}
    assert port_errors_between(BEFORE, after) == [went_down]
    assert port_errors_between(BEFORE, {}) == port_errors_between(BEFORE, BEFORE) == []


class Stalled(Tree):
    """A machine whose adapter's firmware hangs: whoever reads a counter waits."""

    def read(self, kind: str, key: str) -> Json:
        """Read a name at once, and a file after a minute."""
        if kind == "text":
            time.sleep(60)
        return Tree.read(self, kind, key)


def test_the_counters_of_a_node_are_read_in_a_process_with_a_limit(tmp_path: Path) -> None:
    counter = "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"
    assert port_errors_now(build(tmp_path, {counter: "3"})) == {"mlx5_0:1": {"link_downed": 3}}
    since = time.monotonic()
    assert port_errors_now(Stalled(tmp_path), limit_s=0.2) == {}
    assert time.monotonic() - since < 30
    assert port_errors_now(build(tmp_path / "other", {"sys/class/net/eth0/mtu": "1500"})) == {}


def test_the_trial_has_the_errors_of_every_node_by_its_first_rank() -> None:
    grown = port_errors_between({"mlx5_0:1": {"link_downed": 3}}, {"mlx5_0:1": {"link_downed": 5}})
    answers: list[dict[str, Any]] = [
        {"end": encode(RankEnd(rank, "done", "done", "")), "events": [], "started_by": "fork"} for rank in range(4)
    ]
    answers[2][PORT_ERRORS] = grown
    assignment = Assignment(
        label="1", rank=0, local_rank=0, world_size=4, backend=Backend("nccl", "", "nccl"), gpus=RankGpus(()),
        store=StorePlace(""), limits=StageLimits(1.0, 1.0, 1.0, 1.0, False),
    )  # fmt: skip
    result = trial_result(DEFAULT_CANDIDATE, assignment, answers, "", 1.0)
    assert result.port_errors == (PortErrors(2, "mlx5_0:1", (PortCounter("link_downed", 2),)),)
