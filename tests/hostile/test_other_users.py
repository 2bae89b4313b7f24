"""Users on one machine (real uids): nothing of preflight reads, writes or runs for one what belongs to another.

BOB attacks root in a folder where anybody may make files, as /tmp is. Root's rights are the most that could be misused.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from preflight.job.order import Order, supervisor_argv
from preflight.show.json_document import render_json
from tests.command import SIMNCCL, Command
from tests.reports import report_of

BOB = 61234
SECRET = "root-only-4711"
PATIENCE_S = 60.0
REPORT = "good.json"  # of root, in its own folder
REFUSED = (1, 2, 3)  # exit codes without a harm

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users"),
]


@pytest.fixture
def shared() -> Iterator[Path]:
    """Return a folder as /tmp is: anybody may make files, and remove their own."""
    folder = Path(tempfile.mkdtemp(prefix="preflight-users-", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def root(tmp_path: Path) -> Command:
    (tmp_path / REPORT).write_text(render_json(report_of()))
    return Command(sys.executable, tmp_path)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Return a file that root alone may read and write."""
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


def as_bob(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with nothing of root's."""
    return subprocess.run(
        argv, user=BOB, group=BOB, extra_groups=[], cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S,
        check=False, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip


def bobs(path: Path) -> Path:
    os.lchown(path, BOB, BOB)
    return path


def until(is_so: Callable[[], object]) -> None:
    end_at = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_at
        time.sleep(0.02)


# What root may write, as the options say; {} is the planted name.
WRITERS = {
    "check --report": ("check", "--backend", "gloo", "--nproc", "1", "--report", "{}"),
    "check --env-out": ("check", "--backend", "gloo", "--nproc", "1", "--env-out", "{}"),
    "check --also": ("check", "--backend", "gloo", "--nproc", "1", "--also", "junit={}"),
    "check --json": ("check", "--backend", "gloo", "--nproc", "1", "--json", "{}"),
    "probe --json": ("probe", "--json", "{}"),
    "capture -o": ("capture", "-o", "{}"),
    "render -o": ("render", f"../{REPORT}", "-o", "{}"),
    "baseline -o": ("baseline", *[f"../{REPORT}"] * 6, "-o", "{}"),
    "fleet --json": ("fleet", f"../{REPORT}", "--json", "{}"),
    "fleet --out": ("fleet", f"../{REPORT}", "--out", "{}"),
    "explain --json": ("explain", f"../{REPORT}", "--json", "{}"),
    "stuck --json": ("stuck", "--json", "{}"),
    "stuck --out": ("stuck", "--out", "{}"),
}


@pytest.mark.parametrize("kind", ["link to a file", "link to nothing", "FIFO"])
@pytest.mark.parametrize("writer", WRITERS)
def test_root_writes_through_nothing_that_another_user_planted(
    root: Command, shared: Path, secret: Path, writer: str, kind: str
) -> None:
    planted, elsewhere = shared / "planted", secret.with_name("made")
    if kind == "FIFO":
        os.mkfifo(planted)
    else:
        planted.symlink_to(secret if kind == "link to a file" else elsewhere)
    bobs(planted)
    ran = root.run(*(word.format(planted) for word in WRITERS[writer]), timeout_s=PATIENCE_S)
    assert "Traceback" not in ran.stderr
    assert secret.read_text() == f"{SECRET}\n"
    assert not elsewhere.exists()
    assert ran.code in REFUSED, ran.stderr


@pytest.mark.parametrize("name", ["stdout.log", "stderr.log", "stuck.json"])
def test_root_keeps_no_output_of_a_job_in_what_another_user_planted(
    root: Command, shared: Path, secret: Path, name: str
) -> None:
    host = os.uname().nodename
    for number in ("", "2.", "3."):
        bobs(_link(shared / f"{host}.{number}{name}", secret))
    order = Order(
        ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], [], "no.env", 78, True, 600.0, str(shared), False
    )
    ran = subprocess.run(
        supervisor_argv(order), close_fds=False, cwd=root.cwd, capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (3, "out\n")
    assert secret.read_text() == f"{SECRET}\n"


def _link(path: Path, target: Path) -> Path:
    path.symlink_to(target)
    return path


def test_root_removes_nothing_that_another_user_names_as_an_abandoned_run(root: Command, shared: Path) -> None:
    precious = root.cwd / "precious"
    precious.mkdir()
    (precious / "data").write_text(SECRET)
    bobs(_link(shared / "preflight-job-link", precious))
    own = shared / "preflight-job-own"
    own.mkdir()
    bobs(own)
    bobs(_link(own / "data", precious / "data"))
    order = Order(["/bin/true"], [], "no.env", 78, True, 600.0, "", False)
    subprocess.run(
        supervisor_argv(order), close_fds=False, cwd=root.cwd, check=True, timeout=PATIENCE_S,
        env=os.environ | {"TMPDIR": str(shared)},
    )  # fmt: skip
    assert (precious / "data").read_text() == SECRET
    assert own.exists(), "it is another user's"


def readable(shared: Path) -> str:
    """Return all that BOB can read below a folder."""
    return as_bob(
        "/bin/sh", "-c", "cat $(find . -type f 2>/dev/null) 2>/dev/null; find . 2>/dev/null", cwd=shared
    ).stdout


@pytest.mark.parametrize("option", ["--json", "--out"])
def test_what_stuck_wrote_is_read_by_no_other_user(root: Command, shared: Path, option: str) -> None:
    names = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": root.mark, "MASTER_PORT": "1"}
    with subprocess.Popen(["/bin/sleep", "60"], env=root.environ(names)) as job:
        try:
            ran = root.run("stuck", "--watch", "1s", option, str(shared / "answer"), str(job.pid))
        finally:
            job.kill()
    assert ran.code in (0, 1, 3), ran.stderr
    assert (shared / "answer").exists()
    assert "schema_version" not in readable(shared)


@pytest.mark.parametrize("keep", [True, False])
def test_what_is_kept_of_a_job_is_read_by_no_other_user(root: Command, shared: Path, keep: bool) -> None:
    order = Order(
        ["/bin/sh", "-c", f"echo {SECRET}; exit 3"], [], "no.env", 78, True, 600.0, str(shared) if keep else "", False
    )
    subprocess.run(
        supervisor_argv(order), close_fds=False, cwd=root.cwd, check=False, timeout=PATIENCE_S, capture_output=True,
        env=os.environ | {"TMPDIR": str(shared)},
    )  # fmt: skip
    assert SECRET in "".join(path.read_text() for path in shared.rglob("*stdout.log")), "it was kept"
    assert SECRET not in readable(shared)


def test_the_folder_of_a_run_is_read_and_written_by_no_other_user(root: Command, shared: Path) -> None:
    environ = {"TMPDIR": str(shared), "SIMNCCL": "hang:rank=1,stage=init"}
    line = ("check", "--backend", "simnccl@simnccl", "--nproc", "2", "--stage-limit", "6", "--deadline", "20")
    with root.start(*line, env=environ) as run:
        until(lambda: list(shared.rglob("control")))
        names = readable(shared)
        tried = as_bob(
            "/bin/sh", "-c", "for each in */; do echo x >$each/kill; touch $each/control/1; done", cwd=shared
        )
        run.terminate()
        run.communicate(timeout=PATIENCE_S)
    assert "control" not in names and tried.returncode != 0
    assert not [path for path in shared.rglob("*") if path.lstat().st_uid == BOB]


def planted_module(folder: Path, name: str, flag: Path) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"open({str(flag)!r}, 'w').close()\nraise SystemExit(99)\n")
    bobs(path)


MODULES = (
    "torch.py", "json.py", "typer.py", "pynvml.py", "sitecustomize.py", "usercustomize.py", "preflight/__init__.py",
)  # fmt: skip


@pytest.mark.parametrize("command", ["probe", "check", "explain", "stuck", "run"])
@pytest.mark.parametrize(
    "name",
    ["torch.py", "json.py", "typer.py", "pynvml.py", "sitecustomize.py", "usercustomize.py", "preflight/__init__.py"],
)
def test_no_module_in_the_working_directory_is_run(
    root: Command, shared: Path, tmp_path: Path, command: str, name: str
) -> None:
    flag = shared / "was-run"
    planted_module(shared, name, flag)
    script = Path(sys.executable).with_name("preflight")
    lines = {
        "probe": ["probe"], "check": ["check", "--backend", "gloo", "--nproc", "1", "--tests", "collectives"],
        "explain": ["explain", str(tmp_path / REPORT)], "stuck": ["stuck"],
        "run": ["run", "--backend", "gloo", "--nproc", "1", "--", "/bin/true"],
    }  # fmt: skip
    environ = root.environ() | {"PYTHONPATH": f"{SIMNCCL.parent.parent}"}
    subprocess.run(
        [str(script), *lines[command]], cwd=shared, env=environ, timeout=PATIENCE_S, capture_output=True, check=False
    )
    assert not flag.exists()


@pytest.mark.parametrize("how", ["another user's", "a link of another user's", "open to all"])
def test_root_sources_no_settings_that_another_user_can_have_written(root: Command, shared: Path, how: str) -> None:
    flag = root.cwd / "was-sourced"
    text = f": >{flag}\n"
    env = shared / "preflight.env"
    if how == "a link of another user's":
        (shared / "bobs.env").write_text(text)
        bobs(shared / "bobs.env")
        bobs(_link(env, shared / "bobs.env"))
    else:
        env.write_text(text)
        env.chmod(0o666 if how == "open to all" else 0o644)
        os.chown(env, BOB if how == "another user's" else 0, -1)
    order = Order(["/bin/sh", "-c", "echo started"], [], str(env), 78, True, 600.0, "", False)
    ran = subprocess.run(
        supervisor_argv(order), close_fds=False, cwd=root.cwd, capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "started\n")
    assert not flag.exists()
    assert "the job starts without it" in ran.stderr


@pytest.fixture
def bobs_job(shared: Path, secret: Path) -> Iterator[tuple[int, Path]]:
    """Return a job of BOB's that leads root to what only root may read or write, and a FIFO of root's."""
    fifo = secret.with_name("pipe.0.pipe")
    os.mkfifo(fifo, 0o600)
    bobs(_link(shared / "dump0", secret))
    environ = {
        "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "bob", "MASTER_PORT": "1", "PATH": "/usr/bin:/bin",
        "TORCH_FR_DUMP_TEMP_FILE": str(secret)[:-1], "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(shared / "dump"),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(secret.with_name("pipe.")),
    }  # fmt: skip
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with (
        secret.open("a") as inherited,
        subprocess.Popen(
            ["/bin/sleep", "60"], user=BOB, group=BOB, extra_groups=[], env=environ, cwd=shared, stdout=inherited,
            stderr=inherited,
        ) as job,
    ):  # fmt: skip
        yield job.pid, fifo
        job.kill()
    os.close(reader)


def test_root_s_stuck_reads_and_writes_for_a_job_no_more_than_its_user_may(
    root: Command, shared: Path, secret: Path, bobs_job: tuple[int, Path]
) -> None:
    pid, fifo = bobs_job
    ran = root.run("stuck", "-v", "--dump", "--watch", "1s", "--json", str(root.cwd / "stuck.json"), str(pid))
    assert ran.code in (0, 1, 3), ran.stderr
    answer = (root.cwd / "stuck.json").read_text()
    assert len(json.loads(answer)["places"]) == 1, "the job was found"
    assert SECRET not in ran.stdout + ran.stderr + answer
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert os.read(reader, 10) == b""
    finally:
        os.close(reader)
    assert secret.read_text() == f"{SECRET}\n"
