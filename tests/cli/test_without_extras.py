"""Each command works, or says in one line what to install, where a package is missing: alone, or all that may be."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from preflight.cli.program import COMMANDS
from preflight.show.json_document import render_json
from tests.command import Command, Ran
from tests.conftest import PROJECT
from tests.reports import report_of

pytestmark = pytest.mark.heavy(4)

SEED = PROJECT / "tests" / "explain" / "seeds" / "1_qwen_vl_oom_behind_timeout.log"
PAGE = {"PREFLIGHT_VERBOSE": ""}  # what a user gets without -v
# What may be missing, and the names of its files among the installed packages.
FILES = {
    "torch": ("torch",), "jinja2": ("jinja2",), "markupsafe": ("markupsafe",), "pygal": ("pygal",),
    "google-re2": ("re2", "_re2"), "py-spy": ("py_spy",), "zstandard": ("zstandard",),
}  # fmt: skip
ALL = pytest.param(tuple(FILES), id="all")
# Each by itself takes long together.
ALONE = {name: pytest.param((name,), id=name, marks=pytest.mark.integration) for name in FILES}
GET_ZSTD = "pip install 'preflight-nccl[zstd]'"
HTML = {"jinja2", "markupsafe", "pygal"}

Lean = Callable[..., Command]


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> Callable[[frozenset[str]], str]:
    """Return a function that makes an environment with this one's packages but some, and returns its Python."""
    made: dict[frozenset[str], str] = {}
    packages = Path(sysconfig.get_path("purelib"))

    def make(missing: frozenset[str]) -> str:
        if missing not in made:
            home = tmp_path_factory.mktemp("lean")
            venv.EnvBuilder(symlinks=True).create(home)
            left_out = {file for name in missing for file in FILES[name]}
            target = next(home.glob("lib/python*/site-packages"))
            for entry in packages.iterdir():
                if entry.name.split("-")[0].split(".")[0] not in left_out and entry.suffix != ".pth":
                    (target / entry.name).symlink_to(entry)
            if "py-spy" not in missing:
                (home / "bin" / "py-spy").symlink_to(Path(sysconfig.get_path("scripts")) / "py-spy")
            made[missing] = str(home / "bin" / "python")
        return made[missing]

    return make


@pytest.fixture
def lean(pythons: Callable[[frozenset[str]], str], tmp_path: Path) -> Iterator[Lean]:
    """Return a function that gives the command of an environment without some packages."""
    made: list[Command] = []

    def make(*missing: str) -> Command:
        made.append(Command(pythons(frozenset(missing)), tmp_path))
        return made[-1]

    yield make
    for command in made:
        command.kill_all()


def said(ran: Ran) -> str:
    """Return what a command said instead of its result: exactly one line, and no traceback."""
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    return line


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "saved.json"
    path.write_text(render_json(report_of()))
    return str(path)


@pytest.mark.parametrize("missing", [ALL, *ALONE.values()])
def test_what_needs_none_of_them_works(lean: Lean, saved: str, missing: tuple[str, ...]) -> None:
    command = lean(*missing)
    good = [str(command.tmp_path / f"{number}.json") for number in range(5)]
    for number, path in enumerate(good):
        Path(path).write_text(render_json(report_of()).replace('"host": "n1"', f'"host": "n{number}"'))
    ran = command.run("explain", str(SEED), env=PAGE)
    assert ran.code == 1 and "ran out of GPU memory" in ran.stdout
    assert ran.stderr == ""  # a small log takes no longer without google-re2
    for asked, code in [
        (("timeout", "--params", "7B"), 0), (("render", saved), 0), (("render", saved, "--format", "junit"), 0),
        (("fleet", saved), 0), (("diff", saved, saved), 0), (("baseline", *good, "-o", "-"), 0),
        (("checks",), 0), (("schema",), 0),
        (("version",), 0), (("help", "run"), 0),
    ]:  # fmt: skip
        ran = command.run(*asked, env=PAGE)
        assert (ran.code, ran.stderr) == (code, ""), (asked, ran.stderr)
        assert ran.stdout


@pytest.mark.parametrize("missing", [ALL, ALONE["torch"]])
def test_the_probes_need_none_of_them(lean: Lean, missing: tuple[str, ...]) -> None:
    command = lean(*missing)
    probed = command.run("probe", "--json", "-")
    assert (probed.code, probed.stderr) == (0, "")
    (why,) = [each["reason"] for each in probed.document["gaps"] if each["fact"] == "nodes[0].software.torch"]
    assert "pip install 'preflight-nccl[torch]'" in why
    captured = command.run("capture")
    assert captured.code == 0 and json.loads(captured.stdout)


@pytest.mark.parametrize("missing", [ALL, *(ALONE[name] for name in sorted(HTML))])
def test_html_is_refused_in_one_line_before_anything_is_done(
    lean: Lean, saved: str, missing: tuple[str, ...], tmp_path: Path
) -> None:
    command = lean(*missing)
    out = tmp_path / "page"
    for asked in (
        ("render", saved, "--format", "html"), ("fleet", saved, "--out", str(out)),
        ("check", "--also", f"html={out}"),
    ):  # fmt: skip
        ran = command.run(*asked)
        assert ran.code == 2
        line = said(ran)
        assert "pip install 'preflight-nccl[html]'" in line
        assert all(name in line for name in HTML.intersection(missing))
        assert not out.exists() and not (ran.cwd / "preflight-report.json").exists()


@pytest.mark.parametrize("missing", [ALL, ALONE["torch"]])
@pytest.mark.usefixtures("cpu_path")
def test_without_torch_nothing_is_tried_and_one_line_says_what_to_install(lean: Lean, missing: tuple[str, ...]) -> None:
    command = lean(*missing)
    for asked in (("check",), ("check", "--accept"), ("bench",)):
        ran = command.run(*asked, env=PAGE)
        (line,) = ran.stdout.splitlines()
        assert (ran.code, ran.stderr) == (3, "")
        assert "UNKNOWN" in line and "pip install 'preflight-nccl[torch]'" in line
    assert command.run("check", "--accept", env=PAGE).report["node_verdict"] == "unknown"


@pytest.mark.usefixtures("cpu_path")
def test_without_torch_run_says_so_and_does_what_on_unknown_says(lean: Lean) -> None:
    command = lean("torch")
    ran = command.run("run", "--on-unknown", "stop", "--", "echo", "job", env=PAGE)
    assert (ran.code, ran.stdout) == (3, "")
    missing, not_started = ran.stderr.splitlines()
    assert "pip install 'preflight-nccl[torch]'" in missing and "not started" in not_started


def test_without_google_re2_explain_says_so_where_logs_may_be_large(lean: Lean, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    shutil.copy(SEED, folder)
    ran = lean("google-re2").run("explain", str(folder))
    (line,) = ran.stderr.splitlines()
    assert "pip install google-re2" in line


def test_without_zstandard_a_zst_log_says_what_to_install_and_others_are_read(lean: Lean, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log = folder / "job.log.zst"
    log.write_bytes(zstandard.ZstdCompressor().compress(SEED.read_bytes()))
    command = lean("zstandard")
    ran = command.run("explain", str(log), env=PAGE)
    assert (ran.code, said(ran)) == (2, f"preflight: {log}: zstd can't be unpacked here: {GET_ZSTD}")
    shutil.copy(SEED, folder / "other.log")
    packed = shutil.make_archive(str(tmp_path / "packed"), "tar", folder)
    for place in (str(folder), packed):
        several = command.run("explain", place)
        assert several.code == 1 and GET_ZSTD in " ".join(several.stdout.split())


@pytest.mark.parametrize("missing", [ALL, ALONE["py-spy"]])
def test_without_py_spy_the_headline_of_stuck_says_that_it_saw_no_stack(
    lean: Lean, missing: tuple[str, ...], tmp_path: Path
) -> None:
    script = tmp_path / "rank.py"
    script.write_text("import time; time.sleep(100)\n")
    command = lean(*missing)
    env = command.environ({"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": command.mark, "MASTER_PORT": "1"})
    with subprocess.Popen([sys.executable, script], env=env) as job:
        try:
            own = {**PAGE, "PATH": "/usr/bin:/bin"}
            ran = command.run("stuck", "-q", "--watch", "1s", "--pid", str(job.pid), env=own)
        finally:
            job.kill()
    (line,) = ran.stdout.splitlines()
    assert "No Python stack could be read: py-spy is not installed (pip install py-spy)." in line
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("missing", [ALL, *(ALONE[name] for name in FILES)])
@pytest.mark.usefixtures("cpu_path")
def test_doctor_names_what_is_missing_and_gpu_report_needs_none_of_it(lean: Lean, missing: tuple[str, ...]) -> None:
    command = lean(*missing)
    shown = " ".join(command.run("doctor", env=PAGE | {"PATH": "/usr/bin:/bin"}).stdout.split())
    extras = {"torch": "[torch]", "py-spy": "py-spy", "google-re2": "google-re2", "zstandard": "[zstd]"}
    assert all(extras.get(name, "[html]") in shown for name in missing)
    assert "no NVIDIA GPU" in said(command.run("gpu-report"))


@pytest.mark.integration
@pytest.mark.usefixtures("cpu_path")
def test_with_torch_alone_ranks_are_started_and_the_job_is_run(lean: Lean) -> None:
    command = lean(*(name for name in FILES if name != "torch"))
    for asked in (("check", "-q", "--nproc", "1"), ("bench", "-q", "--nproc", "1")):
        ran = command.run(*asked, env=PAGE)
        assert (ran.code, ran.stderr) == (0, "") and ran.stdout.startswith("READY")
    ran = command.run("run", "-q", "--reuse", "1h", "--nproc", "1", "--", "echo", "job", env=PAGE)
    assert (ran.code, ran.stdout) == (0, "job\n"), ran.stderr


def test_every_command_is_run_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f'"{name}"' not in text] == []
