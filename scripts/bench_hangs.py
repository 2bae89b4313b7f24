"""Time a standard check in which trials hang, beside what the same trials cost as separate torchrun launches.

4 ranks play the L20 machine of tests/machines, whose P2P hangs: the default hangs, the conservative settings work, and
on the way back to the fewest the trial with P2P hangs again. The stage limits are those of a backend that isn't NCCL.
Promised: at most the limits of the trials that hung, the timed collectives, and 10 s for everything else.

The torchrun side is an estimate: one launch with one all_reduce is timed and multiplied, and the same limits and timed
collectives are added. Exits 1 where the promise is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scripts.bare_torchrun import ROOT, environment, timed_s, write_script

RANKS = 4
LAUNCHES = 1
MOST_BESIDES_S = 10.0
MACHINE = ROOT / "tests" / "machines" / "l20x10_ens34.json"
GPUS = "6,7,8,9"
FAULT = "hang:via=P2P"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a check with hanging trials cost."""

    total_s: float
    trials: int
    hung: int
    stage_limit_s: float
    timed_s: float  # inside timed collectives, all trials together
    profile: str
    launch_s: float  # one torchrun with one all_reduce

    @property
    def allowed_s(self) -> float:
        """What the promise allows."""
        return self.hung * self.stage_limit_s + self.timed_s + MOST_BESIDES_S

    @property
    def separate_s(self) -> float:
        """What the same trials cost as launches of their own, estimated."""
        return self.trials * self.launch_s + self.hung * self.stage_limit_s + self.timed_s


def collectives_s(report: Mapping[str, Any]) -> float:
    """Return the seconds of all timed collectives, verified before and after, over all trials of a report."""
    return float(sum(result["took_s"] for trial in report["trials"] for result in trial["results"]))


def describe(cost: Cost) -> str:
    """Return the page."""
    besides_s = cost.total_s - cost.hung * cost.stage_limit_s - cost.timed_s
    return (
        f"hangs: {cost.profile} check, {RANKS} ranks, simulated machine, {cost.hung} of {cost.trials} trials hang\n"
        f"  the whole check                 {cost.total_s:7.1f} s (at most {cost.allowed_s:.1f})\n"
        f"    stage limits of what hung     {cost.hung * cost.stage_limit_s:7.1f} s ({cost.hung} of "
        f"{cost.stage_limit_s:.0f} s)\n"
        f"    timed collectives             {cost.timed_s:7.1f} s\n"
        f"    everything else               {besides_s:7.1f} s (at most {MOST_BESIDES_S:.0f})\n"
        f"  as separate torchrun launches   {cost.separate_s:7.1f} s (estimated: {cost.trials} x "
        f"{cost.launch_s:.1f} s, which one launch with\n"
        f"{'':42}one all_reduce was timed to take, and the same\n"
        f"{'':42}limits and timed collectives)\n"
    )


def keeps_promise(cost: Cost) -> bool:
    """Tell whether the check cost no more than what is promised."""
    return cost.hung > 0 and cost.total_s <= cost.allowed_s


def check(folder: str, profile: str) -> tuple[float, dict[str, Any]]:
    """Run the check; return its seconds and its report."""
    argv = [
        sys.executable, "-m", "preflight", "check", "--machine", str(MACHINE), "--gpus", GPUS,
        "--backend", "simnccl@simnccl", "--profile", profile,
    ]  # fmt: skip
    took_s = timed_s(argv, _environ(folder) | {"SIMNCCL": FAULT}, folder)
    with open(os.path.join(folder, "preflight-report.json"), encoding="utf-8") as file:
        report: dict[str, Any] = json.load(file)
    return took_s, report


def launch_s(folder: str) -> float:
    """Return the median seconds of a torchrun that makes one group and does one all_reduce."""
    script = write_script(folder)
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), script]
    return statistics.median(timed_s(argv, _environ(folder), folder) for _ in range(LAUNCHES))


def _environ(folder: str) -> dict[str, str]:
    environ = environment(os.environ, folder)
    return environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests" / "simnccl")))}


def main() -> int:
    from preflight.search.profiles import stage_limits  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--profile", choices=("quick", "standard"), default="standard")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="preflight-bench-") as folder:
        bare_s = launch_s(folder)
        total_s, report = check(folder, asked.profile)
    hung = sum(trial["outcome"] == "hang" for trial in report["trials"])
    cost = Cost(
        total_s,
        len(report["trials"]),
        hung,
        stage_limits("simnccl", None).first_s,
        collectives_s(report),
        asked.profile,
        bare_s,
    )
    sys.stdout.write(describe(cost))
    return 0 if keeps_promise(cost) else 1


if __name__ == "__main__":
    sys.exit(main())
