"""A defect of preflight itself ends as a gap, or with exit code 3 and one line: never as a traceback or a verdict.

Each is made on purpose by a driver that adds a crashing part in a process of its own and then runs the command.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.conftest import OLD_ENV, write_old_env
from tests.cli.trees import stand_in_torch
from tests.command import Command, Ran
from tests.conftest import PROJECT

pytestmark = pytest.mark.heavy(4)

CRASHING_CHECK = """
    from preflight.judge.check import node_check
    from preflight.model.finding import Blame, Unseen

    @node_check("on-purpose", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=())
    def on_purpose(node, case):
        raise ZeroDivisionError("made on purpose")
        yield
"""
ADD_THE_CHECK = """
    import os, preflight.judge.node
    preflight.judge.node.__path__.append(os.path.join(os.path.dirname(__file__), "more_checks"))
"""
CRASHING_PROBE = """
    import preflight.facts.run as run
    def crash(machine, process):
        raise ZeroDivisionError("made on purpose")
    run.PROBES = (*(probe for probe in run.PROBES if probe.fact != "FACT"), run.Probe("FACT", crash, "PROCESS"))
"""
LEAVING_PROBE = CRASHING_PROBE.replace('raise ZeroDivisionError("made on purpose")', "leave()").replace(
    "import preflight.facts.run as run",
    """import os, time
    import preflight.facts.run as run
    def leave():
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(300)
            os._exit(0)""",
)
NO_PYTHON = """
    import sys
    sys.executable = "/nonexistent/python"
"""
CRASHING_LAUNCHER = """
    import preflight.trial.launcher as launcher
    def crash():
        raise ZeroDivisionError("made on purpose")
    launcher.processes.adopt_orphans = crash
"""
CRASHING_JUDGE = """
    import preflight.judge.verdict as verdict
    def crash(*_):
        raise ZeroDivisionError("made\\non purpose")
    verdict._for_the_job = crash
"""
NO_MEMORY = """
    import resource
    import preflight.cli.program as program
    def starve(*_, **__):
        raise ERROR
    program.app = starve
    resource.getrlimit = lambda _: LIMIT
"""
CHECK = ("check", "--backend", "gloo", "--nproc", "1")


def drive(
    command: Command,
    prepare: str,
    *arguments: str,
    python: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
) -> Ran:
    """Run the command after `prepare`, in a process of its own."""
    driver = command.tmp_path / "driver.py"
    driver.write_text(dedent(prepare) + "\nfrom preflight.cli import main\nmain()\n")
    ran = subprocess.run(
        [*(python or (command.python,)), driver, *arguments],
        env=command.environ(env), cwd=command.cwd, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "Exception ignored" not in ran.stderr
    return Ran(ran.returncode, ran.stdout, ran.stderr, 0.0, command.cwd)


def with_a_crashing_check(command: Command, *arguments: str, source: str = CRASHING_CHECK) -> Ran:
    folder = command.tmp_path / "more_checks"
    folder.mkdir()
    (folder / "on_purpose.py").write_text(dedent(source))
    return drive(command, ADD_THE_CHECK, *arguments)


def test_a_check_that_crashes_leaves_the_verdict_unknown_and_the_others_findings(command: Command) -> None:
    ran = with_a_crashing_check(command, *CHECK)
    assert ran.code == 3, ran.stdout + ran.stderr
    assert ran.report["verdict"] == "unknown"
    assert ran.report["trials"][0]["outcome"] == "ok"
    (skipped,) = [each for each in ran.report["skipped_checks"] if each["crashed"]]
    assert skipped["check"] == "on-purpose"
    assert "ZeroDivisionError: made on purpose" in skipped["reason"]
    assert "a defect in preflight" in " ".join(ran.stdout.split())


def test_probe_ends_with_3_where_a_check_crashes(command: Command) -> None:
    ran = with_a_crashing_check(command, "probe")
    assert ran.code == 3
    assert "on-purpose" in ran.stdout


@pytest.mark.parametrize(("fact", "process"), [("limits", "memory"), ("shm", "alone")])
def test_a_probe_that_crashes_costs_its_own_fact_only(command: Command, fact: str, process: str) -> None:
    ran = drive(command, CRASHING_PROBE.replace("FACT", fact).replace("PROCESS", process), "probe", "--json", "-")
    (node,) = ran.document["nodes"]
    assert ran.code in (0, 1), ran.stderr  # what the machine itself gives
    assert ran.stderr == ""
    assert node[fact] is None
    assert [gap["reason"] for gap in node["gaps"] if gap["fact"] == fact] == [
        f"the probe of {fact} failed: ZeroDivisionError: made on purpose"
    ]
    assert node["environment"] is not None
    assert node["system"]["kernel"]


def test_a_process_that_a_library_leaves_behind_ends_with_the_probes(command: Command) -> None:
    drive(command, LEAVING_PROBE.replace("FACT", "limits").replace("PROCESS", "limits"), "probe", "--json", "-")
    assert command.processes() == {}


def test_a_check_runs_on_without_the_fact_of_a_crashed_probe(command: Command) -> None:
    ran = drive(command, CRASHING_PROBE.replace("FACT", "netifs").replace("PROCESS", "netifs"), *CHECK)
    assert ran.code == 0, ran.stdout + ran.stderr
    assert ran.report["nodes"][0]["netifs"] is None
    assert "netif-usable" in [skipped["check"] for skipped in ran.report["skipped_checks"]]


@pytest.mark.parametrize(
    ("defect", "message"),
    [
        (NO_PYTHON, "/nonexistent/python could not be started"),
        (CRASHING_LAUNCHER, "ZeroDivisionError: made on purpose"),
        (CRASHING_JUDGE, "a defect in preflight: ZeroDivisionError: made on purpose"),
    ],
    ids=["no python", "launcher", "judge"],
)
def test_a_defect_on_the_way_is_3_names_itself_in_one_line_and_sets_the_old_env_aside(
    command: Command, defect: str, message: str
) -> None:
    old = write_old_env(command)
    ran = drive(command, defect, *CHECK)
    assert ran.code == 3, ran.stdout + ran.stderr
    assert message in " ".join((ran.stdout + ran.stderr).split())
    assert not old.exists()
    assert old.with_name("preflight.env.stale").read_text() == OLD_ENV
    assert "renamed to preflight.env.stale" in ran.stderr
    assert len(ran.stderr.splitlines()) <= 3, ran.stderr


@pytest.mark.parametrize(
    ("limit", "hint"),
    [("(-1, -1)", "see `free -m`"), ("(64 << 30, -1)", "`ulimit -v` allows 65536 MiB only: raise it")],
    ids=["no limit", "limit"],
)
@pytest.mark.parametrize("error", ["MemoryError()", "ImportError('x.so: failed to map segment')"])
def test_no_memory_before_anything_is_written_is_no_defect_and_leaves_no_old_answer(
    command: Command, error: str, limit: str, hint: str
) -> None:
    old = write_old_env(command)
    ran = drive(command, NO_MEMORY.replace("ERROR", error).replace("LIMIT", limit), *CHECK)
    assert ran.code == 3
    assert ran.stderr.startswith("preflight: memory ran out (") and hint in ran.stderr
    assert "defect" not in ran.stderr and len(ran.stderr.splitlines()) == 1
    assert not old.exists()


def test_if_even_the_message_fails_the_exit_code_is_no_verdict(command: Command) -> None:
    broken = NO_MEMORY + "    program._fail = program.app\n"
    assert drive(command, broken.replace("ERROR", "MemoryError()").replace("LIMIT", "(-1, -1)"), *CHECK).code == 3


@pytest.mark.integration
def test_a_full_tmpdir_is_worked_round(command: Command, need: Callable[[str, bool, str], None]) -> None:
    filled = 'mount -t tmpfs -o size=4k none "$TMPDIR" && head -c 4096 /dev/zero > "$TMPDIR/all" && exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", filled, "sh")
    can_mount = subprocess.run([*prefix, "true"], env=command.environ(), capture_output=True, check=False)
    need("mounts", can_mount.returncode == 0, "mounting needs root")
    ran = command.run(*CHECK, prefix=prefix)
    assert (ran.code, ran.stderr) == (0, "")


def test_a_torch_that_cant_be_imported_is_unknown_and_named(command: Command, tmp_path: Path) -> None:
    broken = stand_in_torch(tmp_path / "stand-in", None, "raise ImportError('libcudart.so.13: not found')")
    ran = command.run(*CHECK, env={"PYTHONPATH": broken})
    assert ran.code == 3, ran.stdout + ran.stderr
    assert "ImportError: libcudart.so.13" in ran.report["headline"]
    assert ran.report["trials"] == []
    assert "Traceback" not in ran.stdout + ran.stderr


def test_without_torch_probe_works_and_check_says_what_is_missing(command: Command, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith("torch"):
            os.symlink(entry, packages / entry.name)
    python, env = (command.python, "-S"), {"PYTHONPATH": f"{PROJECT}:{packages}"}
    probe = drive(command, "", "probe", "--json", "-", python=python, env=env)
    assert probe.code in (0, 1), probe.stderr
    assert probe.document["nodes"][0]["software"]["torch"] is None
    ran = drive(command, "", *CHECK, python=python, env=env)
    assert ran.code == 3, ran.stdout + ran.stderr
    assert "torch is not installed" in ran.report["headline"]
    assert ran.report["trials"] == []
