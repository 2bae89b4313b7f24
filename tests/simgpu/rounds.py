"""Real supervisors and children that take the rounds of a plan on simulated GPUs."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from preflight.launch.launcher import Launched, launch
from preflight.launch.run_dir import make_run_dir, remove_run_dir
from preflight.model.collective import Collective
from preflight.model.device_job import DevicePlan, Round
from preflight.model.run import Measure, RunSpec, StageLimits
from preflight.plan.candidates import DEFAULT_CANDIDATE

MODULE = "tests.simgpu.simgpu"
DEADLINE_S = 60.0
LIMITS = StageLimits(start_s=30, init_s=10, first_s=10, timed_s=15, stretches=True)


def small(rounds: tuple[Round, ...]) -> tuple[Round, ...]:
    """Return rounds that fit two cores of a CPU: copies of 4 KiB and 256 KiB, products of 64 rows."""
    return tuple(
        replace(
            each,
            groups=tuple(
                replace(
                    group,
                    jobs=tuple(
                        replace(
                            job,
                            budget_s=0.01,
                            sizes_bytes=tuple(max(4096, size // 256) for size in job.sizes_bytes),
                            products=tuple(replace(size, rows=64) for size in job.products),
                        )
                        for job in group.jobs
                    ),
                )
                for group in each.groups
            ),
        )
        for each in rounds
    )  # fmt: skip


def run(plan: DevicePlan, ranks: int, deadline_s: float = DEADLINE_S, limits: StageLimits = LIMITS) -> Launched:
    """Launch gloo ranks that first take the plan's rounds; return what they reported."""
    run_dir = make_run_dir()
    now = time.monotonic()
    spec = RunSpec(
        run_dir=run_dir, world_size=ranks, backend="gloo", backend_module=MODULE, dialect="gloo", gpu_uuids=(),
        gpu_bdfs=(), inherited=(), candidates=(DEFAULT_CANDIDATE,), screen_all=False,
        measures=(Measure(Collective.ALL_REDUCE, 1024, 0.01, 3, 5),), duel_measures=(), duel_turns=1, limits=limits,
        deadline_monotonic_s=now + deadline_s, devices=plan,
    )  # fmt: skip
    launched = Launched()
    environ = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "SIMGPU": os.environ.get("SIMGPU", ""),
    }
    launch(spec, environ, launched, lambda _: None, kill_at=now + deadline_s + 2)
    remove_run_dir(run_dir)
    return launched
