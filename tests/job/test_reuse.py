"""`preflight run --reuse` and the settings of a job: nothing that another user wrote, nothing that no check writes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from preflight.job.order import Order, supervisor_argv
from preflight.job.reuse import Now, why_not
from preflight.model.profile import Profile
from preflight.model.report import NodeEnv, Report
from tests.command import Command
from tests.node_facts import gpu_node
from tests.reports import advice_of, report_of

pytestmark = pytest.mark.heavy(4)

NOBODY = 65534
LINE = (
    "run",
    "--reuse",
    "1h",
    "--backend",
    "gloo",
    "--nproc",
    "1",
    "--",
    "sh",
    "-c",
    "echo preload=$LD_PRELOAD$BASH_ENV",
)


def why(report: Report, **changes: Any) -> str:
    """Return why a report that was made a minute ago on this node is not used again."""
    at = datetime.fromisoformat(report.created_at.replace("Z", "+00:00"))
    early, late = at - timedelta(days=1), at + timedelta(minutes=1)
    now = Now(report.nodes[0], (), (), late, early, Profile.QUICK, None, None, False)
    return why_not(report, dataclasses.replace(now, **changes), 3600, 1)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"env": (("NCCL_P2P_DISABLE", "1"), ("LD_PRELOAD", "/tmp/evil.so"))}, "LD_PRELOAD"),
        ({"gpu_env": (("BASH_ENV", "x"),)}, "BASH_ENV"),
        ({"timeout_env": (("NCCL_TUNER_PLUGIN", "x"),)}, "NCCL_TUNER_PLUGIN"),
        ({"nodes": (NodeEnv("n0", 0, (("NCCL_NET_PLUGIN", "/tmp/evil.so"),)),)}, "NCCL_NET_PLUGIN"),
        ({"unset": ("NCCL_ALGO", "LD_LIBRARY_PATH")}, "LD_LIBRARY_PATH"),
    ],
)
def test_a_report_that_changes_what_no_check_changes_is_not_used_again(changes: dict[str, Any], name: str) -> None:
    assert why(report_of()) == ""
    assert why(report_of(advice=advice_of(env=(("NCCL_P2P_DISABLE", "1"),), unset=("NCCL_ALGO",)))) == ""
    assert why(report_of(advice=advice_of(**changes))) == f"changes {name}, which no check changes"


def test_where_gpus_are_there_a_report_of_another_backend_is_used_only_if_that_was_asked_for() -> None:
    report = report_of(nodes=(gpu_node(2),))
    gpus = ("GPU-0", "GPU-1")
    assert why(report, visible=gpus, chosen=()) == "tried gloo"
    assert why(report, visible=()) == "tried gloo", "a driver that lists none is no reason to test none"
    assert why(report, visible=gpus, backend="gloo") == ""
    assert why(dataclasses.replace(report, backend="nccl"), visible=gpus, chosen=gpus) == ""
    assert why(report_of(backend="simnccl", simulated=True)) == "tried simnccl"
    assert why(report_of(backend="simnccl", simulated=True), backend="simnccl@simnccl") == ""


def test_a_report_that_another_user_planted_sets_nothing(command: Command) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make another user's file")
    assert command.run(*LINE).code == 0
    report = command.cwd / "preflight-report.json"
    document = json.loads(report.read_text())
    document["advice"]["env"] = {"LD_PRELOAD": "/tmp/evil.so", "BASH_ENV": "/tmp/evil.sh"}
    report.write_text(json.dumps(document))
    os.chown(report, NOBODY, NOBODY)
    again = command.run(*LINE)
    assert (again.code, again.stdout) == (0, "preload=\n"), again.stderr
    assert (
        f"preflight-report.json can't be used: it belongs to another user (uid {NOBODY}); a new check is made"
        in again.stderr
    )
    assert report.stat().st_uid == 0


@pytest.mark.integration
@pytest.mark.parametrize(
    ("mode", "group_is_own", "is_used"),
    [(0o666, True, False), (0o664, True, True), (0o664, False, False), (0o644, False, True)],
)
def test_a_report_that_others_may_write_is_not_used_again(
    command: Command, mode: int, group_is_own: bool, is_used: bool
) -> None:
    if not group_is_own and os.geteuid() != 0:
        pytest.skip("only root can give a file to another group")
    if group_is_own and os.getegid() != os.geteuid():
        pytest.skip("this user has no group of its own")
    assert command.run(*LINE).code == 0
    report = command.cwd / "preflight-report.json"
    if not group_is_own:
        os.chown(report, -1, NOBODY)
    report.chmod(mode)
    again = command.run(*LINE)
    assert again.code == 0
    assert ("no new check" in again.stderr) is is_used, again.stderr
    assert ("can't be used: other users may write it; a new check is made" in again.stderr) is not is_used


@pytest.mark.parametrize(("uid", "set_to"), [(0, "1"), (NOBODY, "")])
def test_settings_of_another_user_are_not_sourced(tmp_path: Path, uid: int, set_to: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make another user's file")
    env = tmp_path / "preflight.env"
    env.write_text(f": >{tmp_path}/was-sourced\nexport A=1\n")
    os.chown(env, uid, uid)
    order = Order(["/bin/sh", "-c", "echo a=$A"], [], "preflight.env", 78, True, 600.0, str(tmp_path), False)
    ran = subprocess.run(
        supervisor_argv(order), cwd=tmp_path, capture_output=True, text=True, close_fds=False, timeout=60, check=True
    )
    assert ran.stdout == f"a={set_to}\n"
    assert (tmp_path / "was-sourced").exists() is (uid == 0)
    assert ("preflight.env: it belongs to another user (uid 65534); the job starts without it" in ran.stderr) is (
        uid != 0
    )
