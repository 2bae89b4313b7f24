"""Every machine of machines.toml gets with --accept what was said before preflight was asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from preflight.model.report import NodeVerdict, Report
from preflight.model.toml import read_toml
from preflight.model.trial import Outcome
from tests.accept.machines import BASES, MACHINES
from tests.accept.play import play
from tests.node_facts import failed_with, trial
from tests.nvmlsim.machines import BROKEN

pytestmark = pytest.mark.heavy(6)

TABLE = Path(__file__).with_name("machines.toml")
ROWS = read_toml(TABLE.read_text(encoding="utf-8"), str(TABLE))


@pytest.mark.parametrize("row", ROWS["healthy"], ids=lambda row: row["machine"])
def test_a_healthy_machine_gets_what_the_table_says(row: dict[str, str], tmp_path: Path) -> None:
    report = play(MACHINES[row["machine"]], tmp_path)
    assert report.node_verdict is NodeVerdict(row["accept"]), report.headline


# With what torch's ranks end where the fault keeps them from starting.
ENDED_BY = {
    "a fabric that is not ready": "RuntimeError: CUDA error: system not yet initialized",
    "a fabric that refused": "RuntimeError: CUDA error: system not yet initialized",
    "a GPU that fell off the bus": "RuntimeError: CUDA error: unknown error",
    "a driver too old": "RuntimeError: The NVIDIA driver on your system is too old (found version 11080).",
}


@pytest.mark.parametrize("row", ROWS["broken"], ids=lambda row: row["machine"])
def test_a_broken_machine_gets_what_the_table_says(row: dict[str, str], tmp_path: Path) -> None:
    check, machine = BROKEN[row["machine"]]
    ended_by = ENDED_BY.get(row["machine"])
    trials = [failed_with(ended_by, world_size=len(machine.gpus))] if ended_by else []
    report = play(replace(BASES[machine.name], gpus=machine), tmp_path, *trials)
    assert check in {finding.check for finding in report.findings}
    assert report.node_verdict is NodeVerdict(row["accept"]), report.headline


XID = "NVRM: Xid (PCI:0000:18:00): {}"
KILLED = XID.format("45, pid=4242, name=python3, Ch 00000010")
LINK = "mlx5_core 0000:1b:00.0 eno1: Link {}"
NOW_S, HOUR_S = 10 * 86400.0, 3600.0
H100 = MACHINES["8 x H100 SXM, NVSwitch"]


def _history(ago_h: float, *lines: str) -> dict[str, object]:
    return {"now_s": NOW_S, "begins_s": 0.0, "lines": [[NOW_S - ago_h * HOUR_S, line] for line in lines]}


FELL = XID.format("79, GPU has fallen off the bus.")
STEADY = (LINK.format("up"),)
BEFORE = {
    "an Xid 79 three hours before": _history(3, *STEADY, FELL),
    "an Xid 79 two days before": _history(48, *STEADY, FELL),
    "a link that came and went an hour before": _history(1, LINK.format("down"), LINK.format("up")),
    "a kernel log of three hours": _history(0) | {"begins_s": NOW_S - 3 * HOUR_S},
    "no right to the kernel log": "none",
}


def _broken_run(what: str, root: Path) -> Report:
    match what:
        case "one of eight ports without a link":
            return play(replace(H100, ports={"mlx5_3:1": "1: DOWN"}), root)
        case "NVLS expected and absent":
            return play(replace(H100, has_nvls=False), root)
        case "a default that hangs, cured without peer access, and an Xid 45 of the killed ranks":
            hung = trial(outcome=Outcome.HANG, world_size=8)
            cure = trial("no-p2p", world_size=8, env=(("NCCL_P2P_DISABLE", "1"),), transport=("0>1 via SHM/direct",))
            return play(H100, root, hung, cure, xids=(KILLED,))
        case "an Xid 45 of preflight's own kill":
            return play(H100, root, xids=(KILLED,))
        case "an Xid 79 during the run":
            return play(H100, root, xids=(XID.format("79, GPU has fallen off the bus."),))
        case "no peer access tests, cut short":
            return play(H100, root, is_cut_short=True)
        case _:
            raise KeyError(what)


@pytest.mark.parametrize("row", ROWS["broken_run"], ids=lambda row: row["machine"])
def test_a_run_that_shows_a_fault_gets_what_the_table_says(row: dict[str, str], tmp_path: Path) -> None:
    name, is_looking_back, _ = row["machine"].partition(", and a policy that looks back a day")
    report = play(H100, tmp_path, before=BEFORE[name]) if is_looking_back else _broken_run(name, tmp_path)
    assert report.node_verdict is NodeVerdict(row["accept"]), report.headline


def test_the_table_has_every_machine_once() -> None:
    assert [row["machine"] for row in ROWS["healthy"]] == [*MACHINES]
    assert [row["machine"] for row in ROWS["broken"]] == [*BROKEN]
