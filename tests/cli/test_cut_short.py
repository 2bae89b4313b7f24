"""However a check ends, a report of this run is there, in time, and says which parts of the run are in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.test_defects import CHECK, CRASHING_CHECK, CRASHING_JUDGE, drive, with_a_crashing_check
from tests.command import Command
from tests.containment.test_deaths import (
    MIDDLE_OF_A_TRIAL,
    in_the_middle_of_a_trial,
    is_launcher,
    is_supervisor,
    wait_for,
)

SIMULATED = ("--backend", "simnccl@simnccl", "--nproc", "2", "--stage-limit", "30")
OLD_REPORT = '{"verdict": "ready", "of": "yesterday"}'


def start(command: Command, *options: str) -> subprocess.Popen[str]:
    return command.start("check", *SIMULATED, *options, env=MIDDLE_OF_A_TRIAL)


def ends(command: Command) -> dict[str, str]:
    report = json.loads((command.cwd / "preflight-report.json").read_text())
    return {phase["name"]: phase["end"] for phase in report["phases"]}


@pytest.mark.integration
def test_ctrl_c_in_a_trial_leaves_a_report_that_names_the_part_that_was_cut(command: Command) -> None:
    process = start(command, "--also", "junit=j.xml", "--also", "html=p.html")
    wait_for(command, in_the_middle_of_a_trial)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=20)
    report = json.loads((command.cwd / "preflight-report.json").read_text())
    assert (process.returncode, report["exit_code"], report["verdict"]) == (130, 130, "unknown"), stdout
    assert ends(command) == {
        "probe": "completed", "start of the ranks": "completed", "trials": "partial", "judging": "completed",
    }  # fmt: skip
    (trials,) = [phase for phase in report["phases"] if phase["name"] == "trials"]
    assert "stopped by SIGINT during default" in trials["detail"]
    assert 'errors="' in (command.cwd / "j.xml").read_text()
    assert "Not finished" in (command.cwd / "p.html").read_text()
    assert "Not finished" in stdout


@pytest.mark.timing
def test_sigkill_leaves_a_report_of_this_run_and_not_yesterdays(command: Command) -> None:
    (command.cwd / "preflight-report.json").write_text(OLD_REPORT)
    (command.cwd / "d").write_text("preflight ready: yesterday\n")
    process = start(command, "--accept", "--also", "drain=d")
    found = wait_for(command, in_the_middle_of_a_trial)
    os.kill(next(pid for pid, line in found.items() if is_launcher(line)), signal.SIGKILL)
    process.communicate(timeout=20)
    command.wait_until_gone(within_s=5)
    report = json.loads((command.cwd / "preflight-report.json").read_text())
    assert (report["verdict"], report["node_verdict"], report["exit_code"]) == ("unknown", "unknown", 3)
    assert "was killed" in report["headline"]
    assert report["nodes"][0]["host"]
    assert ends(command)["trials"] == "not_reached"
    assert (command.cwd / "d").read_text().startswith("preflight node unknown: preflight was killed")


@pytest.mark.integration
def test_the_death_of_the_conductor_is_named_and_its_trial_is_missing(command: Command) -> None:
    process = start(command)
    found = wait_for(command, in_the_middle_of_a_trial)
    os.kill(min(pid for pid, line in found.items() if is_supervisor(line)), signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode == 3
    assert ends(command)["trials"] == "partial"


@pytest.mark.timing
@pytest.mark.integration
def test_the_deadline_s_report_is_written_before_it(command: Command) -> None:
    began_s = time.time()
    ran = command.simulate("hang:stage=timed", "--deadline", "25", "--also", "html=p.html", ranks=2, limit_s=60)
    assert ran.code in (1, 3)
    assert (command.cwd / "preflight-report.json").stat().st_mtime - began_s < 25.0
    assert "deadline" in " ".join((ran.report["headline"], *ran.report["problems"]))
    assert "partial" in ends(command).values() or "not_reached" in ends(command).values()


def test_a_signal_while_the_node_is_probed_leaves_a_report(command: Command) -> None:
    slow = """
        import os, signal
        import preflight.check.app as app
        def probe_node(*arguments, **options):
            os.kill(os.getpid(), signal.SIGTERM)
        app.probe_node = probe_node
    """
    ran = drive(command, slow, *CHECK)
    assert ran.code == 143, ran.stdout + ran.stderr
    assert ran.report["headline"] == "unknown: stopped by SIGTERM while the node was probed"
    assert ends(command) == {
        "probe": "partial", "start of the ranks": "not_reached", "trials": "not_reached", "judging": "not_reached",
    }  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize(
    "where", ["judge.verdict._for_the_job", "cli.check_outputs.render_env", "cli.check_outputs._page"]
)
def test_a_signal_at_the_very_end_is_no_defect_and_no_verdict(command: Command, where: str) -> None:
    module, _, name = where.rpartition(".")
    late = f"""
        import os, signal
        import preflight.{module} as late
        def stopped(*_):
            os.kill(os.getpid(), signal.SIGINT)
        late.{name} = stopped
    """
    ran = drive(command, late, *CHECK)
    assert ran.code == 130, ran.stdout + ran.stderr
    assert ran.report["exit_code"] == 130
    assert "defect" not in ran.stdout + ran.stderr


@pytest.mark.integration
def test_a_signal_in_a_check_is_no_defect_of_that_check(command: Command) -> None:
    stopping = CRASHING_CHECK.replace(
        'raise ZeroDivisionError("made on purpose")', "__import__('signal').raise_signal(2)"
    )
    ran = with_a_crashing_check(command, *CHECK, source=stopping)
    assert (ran.code, ran.report["exit_code"]) == (130, 130), ran.stdout + ran.stderr
    assert "on-purpose" not in ran.stdout


@pytest.mark.integration
def test_what_was_tried_is_kept_where_judging_fails(command: Command) -> None:
    ran = drive(command, CRASHING_JUDGE, *CHECK)
    assert ran.code == 3, ran.stdout + ran.stderr
    assert ran.report["trials"][0]["outcome"] == "ok"
    assert ran.report["verdict"] == "unknown"
    assert ends(command) == {
        "probe": "completed", "start of the ranks": "completed", "trials": "completed", "judging": "partial",
    }  # fmt: skip


def test_a_usage_error_leaves_the_earlier_report_alone(command: Command, cpu_path: None) -> None:
    path: Path = command.cwd / "preflight-report.json"
    path.write_text(OLD_REPORT)
    assert command.run("check", "--gpus", "0").code == 2
    assert path.read_text() == OLD_REPORT


@pytest.mark.integration
def test_a_signal_while_the_ranks_are_ended_waits_until_nothing_of_them_is_left(command: Command) -> None:
    ending = """
        import os, signal
        import preflight.trial.launcher as launcher
        remove = launcher.remove_segments
        def removing(segments):
            os.kill(os.getpid(), signal.SIGINT)
            remove(segments)
            open("removed", "w").close()
        launcher.remove_segments = removing
    """
    ran = drive(command, ending, *CHECK)
    assert (ran.code, ran.report["exit_code"]) == (130, 130), ran.stdout + ran.stderr
    assert (command.cwd / "removed").exists()
