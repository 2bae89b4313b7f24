"""Real supervisors and children that take the rounds of a plan on simulated GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from preflight.model.codec import decode, encode
from preflight.model.collective import Collective
from preflight.model.device_job import DevicePlan, GpuTestRound
from preflight.model.gpu_test import GpuTest, PairTruth
from preflight.model.run_spec import Backend, Measure, NodePlace, RunSpec, StageLimits, TrialPlan
from preflight.model.trial import TrialResult
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.trial.agent_process import started_agent
from preflight.trial.launch_result import Launch, LaunchResult
from preflight.trial.launcher import launch
from preflight.trial.run_dir import make_run_dir, remove_run_dir
from tests.conftest import PROJECT

MODULE = "tests.simgpu.simgpu"
DEADLINE_S = 60.0
LIMITS = StageLimits(start_s=30, init_s=10, first_s=10, timed_s=15, stretches=True)


def small(rounds: tuple[GpuTestRound, ...]) -> tuple[GpuTestRound, ...]:
    """Return rounds that fit two cores of a CPU: copies of 4, 8 and 512 KiB, products of 64 rows."""
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
                            sizes_bytes=tuple(max(4096, size // 128) for size in job.sizes_bytes),
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


def run(
    plan: DevicePlan, ranks: int, rules: str, deadline_s: float = DEADLINE_S, limits: StageLimits = LIMITS,
    diary: Path | None = None,
) -> LaunchResult:  # fmt: skip
    """Have a process of its own launch gloo ranks that first take the plan's rounds; return what they reported."""
    spec = RunSpec(
        run_dir="", backend=Backend("gloo", MODULE, "gloo"), place=NodePlace(ranks),
        trials=TrialPlan(
            (DEFAULT_CANDIDATE,), limits, measures=(Measure(Collective.ALL_REDUCE, 1024, 0.01, 3, 5),)
        ),
        deadline_monotonic_s=deadline_s, devices=plan,
    )  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-m", "tests.simgpu.rounds"], cwd=PROJECT,
        env=os.environ | {"SIMGPU": rules} | ({"SIMGPU_DIARY": str(diary)} if diary else {}),
        input=json.dumps(encode(spec)), capture_output=True, text=True, timeout=deadline_s + 30, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return _parsed(json.loads(ran.stdout))


def _parsed(answer: dict[str, Any]) -> LaunchResult:
    return LaunchResult(
        problem=answer["problem"],
        simulated=answer["simulated"],
        trials=tuple(decode(TrialResult, each) for each in answer["trials"]),
        pairs=tuple(decode(PairTruth, each) for each in answer["pairs"]),
        gpus=tuple(decode(GpuTest, each) for each in answer["gpus"]),
    )


def main() -> None:
    """Launch the spec on stdin, whose deadline counts from now, and write what came of it to stdout."""
    spec = decode(RunSpec, json.load(sys.stdin))
    run_dir, until = make_run_dir(), time.monotonic() + spec.deadline_monotonic_s
    launched = Launch()
    spec = replace(spec, run_dir=run_dir, deadline_monotonic_s=until)
    with started_agent(os.environ) as agent:
        launch(spec, agent, launched, lambda _: None, kill_at=until + 2)
    remove_run_dir(run_dir)
    lists = {name: [encode(each) for each in getattr(launched.result, name)] for name in ("trials", "pairs", "gpus")}
    json.dump({"problem": launched.result.problem, "simulated": launched.result.simulated, **lists}, sys.stdout)


if __name__ == "__main__":
    main()
