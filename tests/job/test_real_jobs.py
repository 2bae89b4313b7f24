"""`preflight run` with real ranks under torchrun: it ends as they end, and the last page says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from preflight.job.order import Order, supervisor_argv
from preflight.job.reuse import Now, why_not
from preflight.model.profile import Profile
from tests.command import Command
from tests.reports import report_of

pytestmark = pytest.mark.heavy(6)

TRAIN = Path(__file__).with_name("train.py")
LAUNCH = (
    "-m",
    "torch.distributed.run",
    "--rdzv-backend",
    "c10d",
    "--rdzv-endpoint",
    "127.0.0.1:0",
    "--nproc-per-node",
    "2",
)
SIMULATED = ("--backend", "simnccl@simnccl", "--nproc", "2")


def job(way: str, folder: Path) -> list[str]:
    return [sys.executable, *LAUNCH, str(TRAIN), way, str(folder)]


def bare_code(command: Command, way: str) -> int:
    """Return how the job ends without preflight."""
    ran = subprocess.run(
        job(way, command.cwd),
        env=command.environ(),
        cwd=command.cwd,
        close_fds=False,
        capture_output=True,
        timeout=100,
        check=False,
    )
    return ran.returncode


@pytest.mark.integration
def test_a_node_that_is_not_ready_starts_no_job(command: Command) -> None:
    ran = command.run("run", *SIMULATED, "--", "touch", "started", env={"SIMNCCL": "crash:rank=1,stage=init"})
    assert ran.code == 78, ran.stderr
    assert not (command.cwd / "started").exists()
    assert "NOT READY" in ran.stderr
    assert "not ready, so touch was not started" in ran.stderr.splitlines()[-1]
    assert command.run("run", "--exit-not-ready", "9", *SIMULATED, "touch", "started",
                       env={"SIMNCCL": "crash:rank=1,stage=init"}).code == 9  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_check_that_is_stopped_starts_no_job_and_says_so(command: Command, number: signal.Signals) -> None:
    rules = {"SIMNCCL": "hang:rank=1,stage=init"}
    with command.start("run", *SIMULATED, "--", "touch", "started", env=rules) as run:
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        until = time.monotonic() + 30
        while not children.read_text(encoding="ascii") and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1.5)  # into the check: it has started what it probes and tries with
        os.kill(run.pid, number)
        _, stderr = run.communicate(timeout=60)
    assert run.returncode == 128 + number, stderr
    assert stderr.splitlines()[-1] == "preflight: the check was stopped, so touch was not started"
    assert not (command.cwd / "started").exists()


@pytest.mark.integration
def test_quiet_it_says_the_verdict_and_nothing_else(command: Command) -> None:
    ran = command.run("run", "-q", "--backend", "gloo", "--nproc", "1", "--", "echo", "done")
    assert (ran.code, ran.stdout) == (0, "done\n"), ran.stderr
    assert ran.stderr.startswith("READY  ") and ran.stderr.count("\n") == 1


@pytest.mark.parametrize(("options", "code", "starts"), [((), 0, True), (("--on-unknown", "stop"), 3, False)])
def test_where_nobody_could_tell_it_starts_unless_that_was_forbidden(
    command: Command, options: tuple[str, ...], code: int, starts: bool
) -> None:
    ran = command.run("run", "--deadline", "0.01", *SIMULATED, *options, "--", "touch", "started")
    assert ran.code == code, ran.stderr
    assert (command.cwd / "started").exists() is starts
    assert "preflight: " in ran.stderr.splitlines()[-1]


def test_a_wrong_request_and_a_command_that_is_not_there_check_nothing(command: Command) -> None:
    assert command.run("run", "--exit-not-ready", "0", "true").code == 2
    assert command.run("run").code == 2
    assert command.run("run", "--kill-stuck", "--", "true").code == 2, "preflight ends no job"
    assert command.run("run", "--", "no-such-program").code == 127
    assert command.run("run", "--", "").stderr == "preflight: '': not found; nothing was checked\n"
    assert command.run("run", "--", "/etc/passwd").code == 126
    assert list(command.cwd.iterdir()) == []


@pytest.mark.integration
def test_an_earlier_report_is_used_again_until_something_changes(command: Command) -> None:
    line = (
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
        "echo $PREFLIGHT_PG_TIMEOUT_S",
    )
    first, again = command.run(*line), command.run(*line)
    assert (first.code, first.stdout, again.code, again.stdout) == (0, "600\n", 0, "600\n")
    assert "READY" in first.stderr and "READY" not in again.stderr
    assert again.stderr.startswith("preflight: ready: ")
    assert "no new check: preflight-report.json is of 20" in again.stderr
    changed = command.run(*line, env={"NCCL_DEBUG": "WARN"})
    assert "was made with other variables; a new check is made" in changed.stderr
    report = command.cwd / "preflight-report.json"
    report.write_text(report.read_text().replace('"narrowed": ""', '"narrowed": "--skip pids"'))
    assert "was made with --skip pids" in command.run(*line, env={"NCCL_DEBUG": "WARN"}).stderr


@pytest.mark.parametrize("created_at", ["", "2026", "2026-01-01T00:00:00", "yesterday"])
def test_a_report_that_does_not_say_when_it_was_made_is_not_used_again(created_at: str) -> None:
    report = report_of()
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    now = Now(report.nodes[0], (), (), at, at, Profile.QUICK, None, 1, False)
    assert why_not(replace(report, created_at=created_at), now, 1e9, 1) == "has no time of creation"


@pytest.mark.parametrize("value", ["²", "9" * 5000, "-1", "soon"])
def test_a_timeout_that_is_none_is_the_job_s_own_matter(command: Command, value: str) -> None:
    order = Order(["true"], [], "no.env", 78, True, 0.0, "", False)
    env = command.environ({"PREFLIGHT_PG_TIMEOUT_S": value})
    ran = subprocess.run(supervisor_argv(order), env=env, cwd=command.cwd, capture_output=True, text=True,
                         close_fds=False, timeout=60, check=False)  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("way", "says"),
    [("success", ""), ("error", "the tokenizer has no pad token"), ("oom", "killed")],
)
def test_it_ends_as_without_and_says_why_it_failed(command: Command, way: str, says: str) -> None:
    ran = command.run(
        "run", "--backend", "gloo", "--", *job(way, command.cwd), env={"PREFLIGHT_VERBOSE": "0"}, timeout_s=150
    )
    assert ran.code == bare_code(command, way)
    assert "rank 1 trains" in ran.stderr
    page = ran.stderr.partition("preflight: ")[2]
    assert says in page, ran.stderr
    assert len(page.splitlines()) <= 25, page
    assert (ran.stdout.count("done") == 2) == (way == "success")
    assert ("FOUND" in page or "LIKELY" in page) == (way != "success"), page


@pytest.mark.integration
@pytest.mark.timeout(200)
def test_with_split_ranks_each_rank_has_files_of_its_own_and_its_lines_a_prefix(command: Command) -> None:
    kept = command.cwd / "kept"
    kept.mkdir()
    order = Order(job("error", command.cwd), [], "no.env", 78, True, 600.0, str(kept), True)
    ran = subprocess.run(
        supervisor_argv(order), env=command.environ(), cwd=command.cwd, capture_output=True, text=True,
        close_fds=False, timeout=150, check=False,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stderr
    assert "[default1]:rank 1 trains" in ran.stderr.replace("[rank1]", "")
    written = {path.parent.name: path.read_text() for path in kept.glob("*.ranks/*/attempt_0/?/stderr.log")}
    assert sorted(written) == ["0", "1"]
    assert "rank 0 trains" in written["0"] and "pad token" not in written["0"]
    assert "rank 1 trains" in written["1"] and "pad token" in written["1"]
    assert "the tokenizer has no pad token" in ran.stderr.partition("preflight: ")[2], "explain's page"


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_save_that_hangs_is_told_once_while_it_hangs_and_is_left_alone(command: Command) -> None:
    os.mkfifo(command.cwd / "checkpoint")
    with command.start("run", "--backend", "gloo", "--stuck-after", "4", "--", *job("save", command.cwd)) as run:
        assert run.stderr
        lines: list[str] = []
        until = time.monotonic() + 120
        for line in run.stderr:
            lines.append(line)
            if "no progress for" in line or time.monotonic() > until:
                break
        time.sleep(8)
        assert run.poll() is None, "the job is left alone"
        (command.cwd / "checkpoint").open("rb").close()
        os.kill(run.pid, signal.SIGTERM)
        lines += run.stderr.readlines()
        code = run.wait(60)
    text = "".join(lines)
    assert code != 0
    assert text.count("no progress for") == 1
    assert "STUCK" in text, text
    assert "is left running" in text


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_rank_that_computes_while_another_waits_ends_as_without(command: Command) -> None:
    enough = command.cwd / "enough"
    with command.start("run", "--backend", "gloo", "--stuck-after", "4", "--", *job("evaluate", command.cwd)) as run:
        assert run.stderr
        lines: list[str] = []
        for line in run.stderr:
            lines.append(line)
            if "no progress for" in line:  # it is looked at while rank 0 computes
                enough.touch()
        stdout, code = run.communicate(timeout=60)[0], run.returncode
    assert enough.exists(), lines
    assert code == bare_code(command, "evaluate") == 0, lines
    assert sorted(stdout.split("\n")) == ["", "done 0", "done 1"]
