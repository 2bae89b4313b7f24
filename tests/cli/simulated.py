"""Machines that people have trouble with, as `check --machine` meets them: the fault, and the right recommendation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.model.codec import decode
from preflight.model.report import PAUSED, Report
from preflight.model.trial import AGAIN
from preflight.show.check_page import render_check
from preflight.show.text import Style
from tests.command import Command, Ran

HERE = Path(__file__).parent.parent
CAPTURES = HERE / "machines"
GOLDEN = HERE / "golden" / "machines-tried"
HANG_LIMIT_S, LIMIT_S = "5", "15"  # where nothing hangs, a busy test machine must not look as if
# What a clock gave, in the report's numbers and in its sentences; nothing else is replaced.
MEASURED = frozenset(
    {"min_us", "median_us", "p95_us", "spread", "algbw_gb_s", "busbw_gb_s", "own_us", "slowdown", "duration_s"}
)
TOLD = (
    (re.compile(r"\b\d[\d.]* GB/s"), "1.00 GB/s"),
    (re.compile(r"\b\d[\d.]* (µs|ms)"), r"1.00 \1"),
    (re.compile(r"\bsilent for [\d.]+ s"), "silent for 2.0 s"),
    (re.compile(r"\]:\d{4,5}\b"), "]:45231"),
    (re.compile(r"\b\d[\d.]*( ?%| times)"), r"1\1"),
    (re.compile(r"\bpid \d+"), "pid 4711"),
    (re.compile(r"\bseed \d+"), "seed 4711"),
    (re.compile(r"\b(the time budget is) [\d,]+ s", re.IGNORECASE), r"\1 180 s"),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "2026-01-01"),
    (re.compile(r"\b\d\d:\d\d:\d\d\]"), "12:00:00]"),
    # The ranks fail in the same second; the one that wrote first is quoted.
    (re.compile(r"\b(host-\d+):\d+:\d+ \[\d\]"), r"\1:4711:4711 [0]"),
    (re.compile(r"\bnccl/\d\.(host-\d+)\b"), r"nccl/0.\1"),
    (re.compile(r"\bin each of \d+ tries \([\d.]+ s"), "in each of 3 tries (1.0 s"),
    (re.compile(r"\b\d+\.\d+ s\b"), "1.0 s"),
    (re.compile(r"\b(host-\d+)\.\d+\.log"), r"\1.4711.log"),
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A machine with faults and the right answer for it."""

    machine: str
    gpus: str
    rules: str
    env: Mapping[str, str] = field(default_factory=dict)  # what must be recommended, no more and no less
    inherited: Mapping[str, str] = field(default_factory=dict)
    profile: str = "quick"
    verdict: str = "ready_with_env"
    finding: str = ""  # a check that must speak
    kept: bool = True  # False where which figure is the worst, and so the page's words, is the clock's doing

    @property
    def code(self) -> int:
        return 0 if self.verdict.startswith("ready") else 1


P2P_OFF, IB_OFF = {"NCCL_P2P_DISABLE": "1"}, {"NCCL_IB_DISABLE": "1"}
ENS34 = {"NCCL_SOCKET_IFNAME": "=ens34"}
HANGS, NO_IB, ONLY_ENS34 = "hang:via=P2P", "error:net=IB", "hang:netif=!ens34"
SCENARIOS = {
    "healthy": Scenario("l20x10", "0,1", "", verdict="ready"),
    "healthy_nvswitch": Scenario("h100x8", "0-3", "", verdict="ready"),
    "healthy_geforce": Scenario("rtx4090x2", "0,1", "", verdict="ready"),
    "p2p_hangs": Scenario("l20x10_ens34", "0,1", HANGS, P2P_OFF, finding="iommu-translates"),
    "p2p_corrupts": Scenario("l20x10_ens34", "0,1", "corrupt:via=P2P", P2P_OFF, finding="data-verified"),
    "p2p_hangs_beside_nvlink": Scenario(
        "a100x4_torch26", "0-3", "hang:via=P2P/PCI", {"NCCL_P2P_LEVEL": "NVL"}, finding="trial-failed"
    ),
    "ib_unusable": Scenario("l20x10_ens34", "0,1", NO_IB, IB_OFF, finding="trial-failed"),
    "wrong_interface": Scenario("l20x10_ens34", "0,1", ONLY_ENS34, ENS34, finding="trial-failed"),
    "nvls_broken": Scenario("h100x8", "0-3", "error:via=NVLS", {"NCCL_NVLS_ENABLE": "0"}, finding="trial-failed"),
    "shm_too_small": Scenario(
        "l20x4_docker", "0,2", "error:via=SHM/FILE", {"NCCL_SHM_DISABLE": "1"}, finding="shm-too-small"
    ),
    "slow_but_right": Scenario("l20x10", "0,1", "slow:factor=4", verdict="ready"),
    "one_gpu_slow": Scenario(
        "l20x10", "6,7,8,9", "slow:gpu=8,factor=6", verdict="not_ready", finding="straggler", kept=False
    ),
    "two_faults": Scenario("l20x10_ens34", "0,1", f"{HANGS};{NO_IB}", P2P_OFF | IB_OFF),
    "three_faults": Scenario("l20x10_ens34", "6,7,8,9", f"{HANGS};{NO_IB};{ONLY_ENS34}", P2P_OFF | IB_OFF | ENS34),
    "only_as_is": Scenario(
        "l20x10",
        "0,1",
        "crash:rank=1,stage=first,unless=NCCL_ALGO=Ring",  # of two that crash one may lose its connection first
        {"NCCL_ALGO": "Ring"},
        inherited={"NCCL_ALGO": "Ring", "NCCL_BUFFSIZE": "1048576"},
    ),
    "nothing_works": Scenario("l20x10", "0,1", "crash", verdict="not_ready", finding="trial-failed"),
}


def run(scenario: Scenario, command: Command) -> Ran:
    """Run `preflight check` on the scenario's machine."""
    return command.run(
        "check", "--machine", str(CAPTURES / f"{scenario.machine}.json"), "--backend", "simnccl@simnccl",
        "--gpus", scenario.gpus, "--profile", scenario.profile,
        "--stage-limit", HANG_LIMIT_S if "hang" in scenario.rules else LIMIT_S, "--deadline", "200",
        env={"SIMNCCL": scenario.rules, "COLUMNS": "80", **scenario.inherited}, timeout_s=220,
    )  # fmt: skip


def rendered(report: dict[str, Any]) -> str:
    """Return the page of a report at 80 columns."""
    return render_check(decode(Report, report), Style(width=80))


def kept_page(report: dict[str, Any]) -> str:
    """Return the page with every measured number replaced, so that it can be compared with the kept one.

    Noise can make a rank look late. The default settings are then timed again, so such a row is the clock's doing too.
    """
    trials = [trial for trial in report["trials"] if not trial["candidate"].startswith(AGAIN)]
    return rendered(_still(json.loads(json.dumps({**report, "trials": trials}))))


def _still(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        if key == "durations_s":
            return {name: 1.0 for name in value if name != PAUSED}  # a busy machine stands still now and then
        return {name: _still(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_still(each, key) for each in value]
    if key in MEASURED and isinstance(value, (int, float)):
        return 1000.0 if key.endswith("_us") else 1.0
    if key in ("repetitions", "seed"):
        return 25 if key == "repetitions" else 4711
    if isinstance(value, str):
        for pattern, put in TOLD:
            value = pattern.sub(put, value)
    return value
