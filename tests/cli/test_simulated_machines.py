"""Whole machines with faults, tried: the fewest settings that cure them, and a page that says so at 3 a.m.

The page on stdout is the rendering of the report that was written; what is kept is the same page with only the measured
numbers replaced.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from preflight.check.survey import capture
from preflight.show.text import width_of
from tests.cli.simulated import CAPTURES, ENS34, GOLDEN, IB_OFF, P2P_OFF, SCENARIOS, Scenario, kept_page, rendered, run
from tests.command import Command, Ran
from tests.kept import WRITING, compare
from tests.machines.faulty import FAULTY

# They record, and change nothing; the timeout's part of the file switches them on where torch has them off.
FLIGHT_RECORDER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT")
QUICK_RING = ("healthy",)  # the others take half a minute and more each
BULK = [name for name in SCENARIOS if name not in QUICK_RING]


@pytest.mark.parametrize("name", FAULTY)
def test_the_capture_beside_the_machine_is_what_the_machine_gives(name: str, tmp_path: Path) -> None:
    text = capture(FAULTY[name](tmp_path))
    path = CAPTURES / f"{name}.json"
    if WRITING:
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize(
    "name", [*QUICK_RING, *(pytest.param(name, marks=pytest.mark.integration) for name in BULK)]
)  # fmt: skip
@pytest.mark.heavy(2)
@pytest.mark.timeout(240)
def test_exactly_what_cures_the_machine_is_recommended_and_the_page_says_it(name: str, command: Command) -> None:
    scenario = SCENARIOS[name]
    ran = run(scenario, command)
    assert ran.code == scenario.code, ran.stdout + ran.stderr
    assert ran.report["simulated"] is True
    assert ran.report["advice"]["env"] == dict(scenario.env)
    assert ran.report["verdict"] == scenario.verdict
    assert not scenario.finding or scenario.finding in [finding["check"] for finding in ran.report["findings"]]
    subjects = [finding["subject"] for finding in ran.report["findings"] if finding["check"] == "straggler"]
    assert subjects == (["rank 2"] if scenario.finding == "straggler" else [])
    compare_pages(name, ran)
    check_env(scenario, ran)


def compare_pages(name: str, ran: Ran) -> None:
    assert ran.stdout == rendered(ran.report)
    assert ran.stdout.startswith("SIMULATED: ")
    assert max(width_of(line) for line in ran.stdout.splitlines()) <= 80
    if not SCENARIOS[name].kept:
        return
    compare(GOLDEN / f"{name}.txt", kept_page(ran.report))


def check_env(scenario: Scenario, ran: Ran) -> None:
    path = ran.cwd / "preflight.env"
    if scenario.code:
        assert not path.exists()
        return
    assert sourced(path, "sh", scenario.inherited) == {**scenario.inherited, **scenario.env}
    network = {name for name in scenario.env if name in {**IB_OFF, **ENS34}}
    for shell in ("sh", "bash"):
        on_two_nodes = sourced(path, shell, {"SLURM_NNODES": "2"})
        assert on_two_nodes == {name: value for name, value in scenario.env.items() if name not in network}


def sourced(path: Path, shell: str, environ: dict[str, str] | object) -> dict[str, str]:
    """Return the variables that change what NCCL does and that a shell has after sourcing the file."""
    variables = dict(environ) if isinstance(environ, dict) else {}
    ran = subprocess.run(
        [shell, "-c", f". {path} && env"], env={"PATH": os.environ["PATH"], **variables}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    pairs = [line.partition("=") for line in ran.stdout.splitlines()]
    read = {name: value for name, _, value in pairs if name.startswith(("NCCL_", "GLOO_", "TORCH_"))}
    return {name: value for name, value in read.items() if name not in FLIGHT_RECORDER}


SEED = {"hang:via=P2P": P2P_OFF, "error:net=IB": IB_OFF, "hang:netif=!ens34": ENS34}


@pytest.mark.heavy(2)
@pytest.mark.integration
@pytest.mark.timeout(240)
@pytest.mark.parametrize("faults", range(1, 7), ids=lambda faults: f"{faults:03b}")
def test_on_the_seeds_machine_fewer_faults_need_fewer_settings(faults: int, command: Command) -> None:
    acting = [fault for i, fault in enumerate(SEED) if faults >> i & 1]
    needed: dict[str, str] = {}
    for fault in acting:
        needed |= SEED[fault]
    ran = run(Scenario("l20x10_ens34", "8,9", ";".join(acting), needed), command)
    assert ran.code == 0, ran.stdout + ran.stderr
    assert ran.report["advice"]["env"] == needed
