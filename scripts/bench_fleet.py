"""`preflight fleet` over thousands of generated reports: what it finds, its time beside json.load, its memory."""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from preflight.model.collective import Collective, bus_factor

NODES = 10_000
MOST_RATIO, MOST_MIB, MOST_OTHERS = 1.5, 600, 5
CAPTURE = os.path.join(os.path.dirname(__file__), "..", "tests", "machines", "h100x8.json")
SIZES = [8 * 4**k for k in range(15)]
Json = dict[str, Any]


def model_report() -> Json:
    """Return a report of an 8-GPU node with the real facts of a captured machine."""
    argv = [sys.executable, "-m", "preflight", "probe", "--machine", CAPTURE, "--json", "-"]
    probed = json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=False).stdout)
    report = {"schema_version": 1, "verdict": "ready", "node_verdict": "accept", "exit_code": 0, "simulated": True}
    report |= {"backend": "nccl", "profile": "standard", "world_size": 8, "nodes": probed["nodes"], "findings": []}
    return report | {"skipped_checks": probed["skipped_checks"], "gaps": probed["gaps"]}


def fill(report: Json, host: str, chance: random.Random) -> Json:
    """Return the report of one more node: its own speed, noise, temperatures."""
    made = copy.copy(report)
    node = copy.copy(report["nodes"][0])
    node["host"] = host
    node["gpus"] = [gpu | {"temperature_c": round(chance.gauss(33, 2))} for gpu in node["gpus"]]
    speed = math.exp(chance.gauss(0, 0.01))
    results = [
        _result(each, size, speed, chance) for size in SIZES for each in (Collective.ALL_REDUCE, Collective.ALL_GATHER)
    ]
    made |= {"nodes": [node], "created_at": "2026-11-21T10:00:00+00:00"}
    made["trials"] = [{"candidate": "default", "outcome": "ok", "results": results}]
    return made


def _result(collective: Collective, size: int, speed: float, chance: random.Random) -> Json:
    busbw = 400 * size / (size + 3e7) * speed * math.exp(chance.gauss(0, 0.02))
    median_us = size * bus_factor(collective, 8) / busbw / 1e3
    ranks = [{"rank": r, "own_us": median_us, "slowdown": math.exp(chance.gauss(0, 0.02))} for r in range(8)]
    found = {"collective": collective.value, "size_bytes": size, "repetitions": 20, "median_us": median_us}
    return found | {"busbw_gb_s": busbw, "verified": True, "ranks": ranks}


def _slow(report: Json) -> None:
    for result in report["trials"][0]["results"]:
        result["busbw_gb_s"] *= 0.8 if result["size_bytes"] >= 1 << 24 else 1.0


def _slow_rank(report: Json) -> None:
    for result in report["trials"][0]["results"]:
        result["ranks"][5]["slowdown"] *= 1.5


def _latency(report: Json) -> None:
    for result in report["trials"][0]["results"]:
        result["busbw_gb_s"] *= 0.5 if result["size_bytes"] < 1 << 16 else 1.0


def _gpu(**changes: Any) -> Callable[[Json], None]:
    def plant(report: Json) -> None:
        report["nodes"][0]["gpus"][3] |= changes

    return plant


def _node(name: str, **changes: Any) -> Callable[[Json], None]:
    def plant(report: Json) -> None:
        report["nodes"][0][name] = report["nodes"][0][name] | changes

    return plant


PLANTED: tuple[Callable[[Json], None], ...] = (
    _slow,
    _slow_rank,
    _latency,
    _gpu(temperature_c=71),
    _gpu(
        ecc={
            "volatile_corrected": 0,
            "volatile_uncorrected": 0,
            "aggregate_corrected": 90_000,
            "aggregate_uncorrected": 0,
        }
    ),
    _gpu(pcie={"gen": 1, "gen_max": 5, "gpu_gen_max": 5, "width": 8, "width_max": 16, "replays": 0}),
    _gpu(pcie={"gen": 1, "gen_max": 5, "gpu_gen_max": 5, "width": 16, "width_max": 16, "replays": 4_000}),
    _gpu(power_limit_w=500.0),
    _gpu(nvlinks=[]),
    _node("driver", version="570.86.15"),
    _node("shm", size_bytes=64 << 20),
    _node("limits", memlock_bytes=65536),
)


def generate(folder: str, count: int) -> set[str]:
    """Write the reports; return the hosts with planted faults."""
    chance, model, odd = random.Random(11), model_report(), set()
    places = dict(zip(chance.sample(range(count), len(PLANTED)), PLANTED, strict=True))
    for number in range(count):
        host = f"gpu{number:05d}"
        report = fill(model, host, chance)
        if number in places:
            places[number](report)
            odd.add(host)
        with open(os.path.join(folder, f"{host}.json"), "w", encoding="ascii") as file:
            json.dump(report, file, indent=1)
    return odd


PLAIN = """
import json, os, sys
for name in sorted(os.listdir(sys.argv[1])):
    json.load(open(os.path.join(sys.argv[1], name), encoding="utf-8"))
"""


def timed(argv: list[str]) -> tuple[float, float, bytes]:
    """Run a command; return its CPU seconds, its largest memory in MiB and what it printed."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        out = process.stdout.read() if process.stdout else b""
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, out


def measure(count: int) -> tuple[float, float, float, set[str], set[str]]:
    """Return seconds of fleet and of json.load, MiB, the planted hosts and those that were named."""
    folder = tempfile.mkdtemp(prefix="preflight-fleet-")
    try:
        planted = generate(folder, count)
        plain_s, _, _ = timed([sys.executable, "-c", PLAIN, folder])
        fleet_s, mib, out = timed([sys.executable, "-m", "preflight", "fleet", folder, "--json", "-"])
        plain_again_s, _, _ = timed([sys.executable, "-c", PLAIN, folder])
    finally:
        shutil.rmtree(folder)
    named = {odd["host"] for group in json.loads(out)["groups"] for odd in group["odd"]}
    return fleet_s, (plain_s + plain_again_s) / 2, mib, planted, named


def main() -> int:
    """Print the figures; 1 where a promised one is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=NODES)
    asked = parser.parse_args()
    ok, per_node_s = True, []
    for count in sorted({max(50, asked.nodes // 10), asked.nodes}):
        fleet_s, plain_s, mib, planted, named = measure(count)
        per_node_s.append(fleet_s / count)
        missed, others, ratio = len(planted - named), len(named - planted), fleet_s / plain_s
        sys.stdout.write(
            f"fleet of {count} reports: {len(planted) - missed} of {len(planted)} planted outliers found, {others} "
            f"others named (at most {MOST_OTHERS}); {ratio:.2f} times a plain json.load (at most {MOST_RATIO}), "
            f"{mib:.0f} MiB (at most {MOST_MIB}), {fleet_s / count * 1e3:.2f} ms CPU a report\n"
        )
        if count == asked.nodes:
            ok = not missed and others <= MOST_OTHERS and ratio <= MOST_RATIO and mib <= MOST_MIB
    sys.stdout.write(
        f"  cost per report, ten times as many: {per_node_s[-1] / per_node_s[0]:.2f} times (linear is 1)\n"
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
