"""The second phase's place in the run directory, and its spec: the node's own, with what all nodes have in common."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

from preflight.launch.run_dir import make_folders, spec_path
from preflight.model.baseline import NO_BASELINE
from preflight.model.codec import encode
from preflight.model.device_job import NO_DEVICES
from preflight.model.run import RunSpec
from preflight.model.together import Common

FOLDER = "together"


def together_dir(run_dir: str) -> str:
    """Return the directory of the common phase."""
    return os.path.join(run_dir, FOLDER)


def common_spec(own: RunSpec, common: Common, ends_by: float) -> RunSpec:
    """Return what this node's ranks do in the common phase; no later than `ends_by` (monotonic)."""
    return replace(
        own,
        run_dir=together_dir(own.run_dir),
        world_size=common.world_size,
        nodes=common.nodes,
        ranks_here=own.local_size,
        first_rank=common.first_rank,
        node_sizes=common.node_sizes,
        ways=common.ways,
        store_host=common.store_host,
        candidates=common.candidates,
        own_env=common.own_env,
        screen_all=common.screen_all,
        measures=common.measures,
        duel_measures=common.duel_measures,
        duel_turns=common.duel_turns,
        limits=common.limits,
        deadline_monotonic_s=min(ends_by, time.monotonic() + common.left_s),
        settings=(),  # each node has looked for its own cures by itself, and tested its own GPUs
        devices=NO_DEVICES,
        baseline=NO_BASELINE,
        goes_on=False,
    )


def begin_together(spec: RunSpec) -> str:
    """Tell this node's supervisors, who wait for the file; return the control directory of the common phase."""
    path = spec_path(spec.run_dir)
    temporary = f"{path}.new"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(encode(spec), file)
    os.rename(temporary, path)
    return os.path.join(spec.run_dir, "control")


def prepare(run_dir: str) -> None:
    """Make the common phase's folders before anybody writes into them."""
    os.mkdir(together_dir(run_dir), 0o700)
    make_folders(together_dir(run_dir))
