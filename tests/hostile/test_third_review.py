"""What the third review's hostile test found (attack.md): each test failed before its mend."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from preflight.errors import MalformedInput
from preflight.job.order import Order, supervisor_argv
from preflight.model.input_limits import ARCHIVE
from preflight.stuck.collect.jobs import ListedProcess
from preflight.stuck.collect.recordings import PIPE, read_recordings
from preflight.system.archives import members
from tests.command import OWN_PATH, Command
from tests.netns import can_mount

PATIENCE_S = 60.0
SECRET = "root:SECRET-HASH-OF-ROOT:1::"


def order_of(command: Sequence[str], keep: Path | str = "") -> list[str]:
    """Return the command line that runs a job without a check before it."""
    return supervisor_argv(Order(list(command), [], "no.env", 78, True, 600.0, str(keep), False))


def ended(argv: Sequence[str], **environ: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; the order lies in an inherited descriptor."""
    return subprocess.run(
        argv, close_fds=False, env=os.environ | environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def until(is_so: Callable[[], object]) -> None:
    """Wait for something; fail where it does not come."""
    end_at = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_at
        time.sleep(0.01)


@pytest.mark.integration
def test_stuck_reads_what_a_rank_has_open_and_not_another_file_of_that_name(command: Command) -> None:
    (command.tmp_path / "secret").write_text(SECRET)
    code = (
        "import os, time\n"
        "out = os.open('out.log', os.O_CREAT | os.O_WRONLY); os.dup2(out, 1); os.dup2(out, 2); print('hello')\n"
        "os.unlink('out.log'); os.symlink('../secret', 'out.log (deleted)'); time.sleep(100)\n"
    )
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    with subprocess.Popen([sys.executable, "-c", code], cwd=command.cwd, env=os.environ | rank) as job:
        try:
            until(lambda: os.path.lexists(command.cwd / "out.log (deleted)"))
            ran = command.run("stuck", "--pid", str(job.pid), "--json", "report.json")
        finally:
            job.kill()
    report = (command.cwd / "report.json").read_text()
    assert [place["pid"] for place in json.loads(report)["places"]] == [job.pid]
    assert SECRET not in ran.stdout + ran.stderr + report


def test_a_request_to_dump_follows_no_link_in_the_place_of_the_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "elsewhere")
    (tmp_path / "asked0.pipe").symlink_to("elsewhere")
    dumped = tmp_path / "dump0"
    dumped.touch()
    os.utime(dumped, (time.time() + PATIENCE_S,) * 2)  # so that nothing is waited for
    places = {PIPE: str(tmp_path / "asked"), "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "dump")}
    names = {"RANK": "0", "WORLD_SIZE": "1"}
    rank = ListedProcess(os.getpid(), 1, os.getuid(), "python", "S", 0, (), names, places, frozenset())
    reader = os.open(tmp_path / "elsewhere", os.O_RDONLY | os.O_NONBLOCK)
    try:
        read_recordings([rank], dumps=True)
        assert os.read(reader, 9) == b""
    finally:
        os.close(reader)


def test_two_runs_that_keep_their_output_in_one_folder_keep_all_of_it(tmp_path: Path) -> None:
    keep, go_on, has_begun = tmp_path / "kept", tmp_path / "go-on", tmp_path / "has-begun"
    keep.mkdir()
    script = f"echo of the first; : >{has_begun}; until [ -e {go_on} ]; do sleep 0.02; done"
    with subprocess.Popen(order_of(("/bin/sh", "-c", script), keep), close_fds=False, stdout=subprocess.PIPE) as first:
        until(has_begun.exists)
        assert ended(order_of(("/bin/echo", "of the second"), keep)).returncode == 0
        go_on.touch()
        assert first.wait(PATIENCE_S) == 0
    kept = "".join(path.read_text() for path in keep.iterdir() if path.is_file())
    assert sorted(kept.splitlines()) == ["of the first", "of the second"]


@pytest.mark.timeout(200)
def test_ctrl_c_in_the_api_s_check_leaves_no_folder(tmp_path: Path) -> None:
    handled = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # it may be ignored where tests run
    )
    code = f"{handled}; import preflight; preflight.check(backend='gloo', nproc=1, profile='standard')"
    environ = os.environ | {"PYTHONPATH": OWN_PATH, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.PIPE) as python:
        until(lambda: list(tmp_path.rglob("control")))
        python.send_signal(signal.SIGINT)
        _, stderr = python.communicate(timeout=PATIENCE_S)
    assert b"KeyboardInterrupt" in stderr
    assert [path.name for path in tmp_path.iterdir()] == []


def test_what_a_killed_run_kept_is_gone_when_the_next_run_has_ended(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    argv = order_of(("/bin/sh", "-c", f"echo of the first; : >{seen}; exec sleep 100"))
    folder = tmp_path / "tmp"
    folder.mkdir()
    with subprocess.Popen(
        argv, close_fds=False, env=os.environ | {"TMPDIR": str(folder)}, stdout=subprocess.DEVNULL
    ) as first:
        until(seen.exists)
        first.kill()
    assert ended(order_of(("/bin/true",)), TMPDIR=str(folder)).returncode == 0
    assert [path.name for path in folder.glob("preflight-job-*")] == []


NODES = """
import json, os, resource, socket, sys, threading, time
from preflight.trial.nodes.agreement import why_no_agreement
from preflight.model.placement import Placement

strangers, limit_s, first_words, nodes = int(sys.argv[1]), float(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
place = Placement(nodes, 0, "127.0.0.1", (port,), "run-1", (), ())

def connect():
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.02)

def call():
    held = [connect() for _ in range(strangers)]
    for number in range(2, nodes):
        held.append(connect())
        held[-1].sendall(first_words[0].replace('"node": 1,', f'"node": {number},').encode())
    node = connect()
    for word in first_words:
        node.sendall(word.encode())
        time.sleep(0.3)
    node.recv(4096)

threading.Thread(target=call, daemon=True).start()
print(why_no_agreement(place, (), "report-1", limit_s), flush=True)
os._exit(0)
"""
SAID = json.dumps({"kind": "reuse", "run": "run-1", "node": 1, "report": "report-1"}) + "\n"


def agreement(strangers: int, limit_s: float, *words: str, nodes: int = 2) -> subprocess.CompletedProcess[str]:
    """Return what node 0 prints when that many strangers connect, then the other nodes, and node 1 says its words."""
    numbers = (str(strangers), str(limit_s), json.dumps(words), str(nodes))
    return ended([sys.executable, "-c", NODES, *numbers], PYTHONPATH=OWN_PATH)


def test_more_strangers_than_select_takes_keep_no_node_from_agreeing() -> None:
    assert agreement(10, 30.0, SAID).stdout == "\n"
    many = agreement(1100, 30.0, SAID)
    assert (many.returncode, many.stdout) == (0, "\n"), many.stderr


@pytest.mark.integration
@pytest.mark.parametrize(("strangers", "nodes"), [(3000, 2), (0, 1501), (3000, 1501)])
def test_thousands_of_silent_strangers_and_of_nodes_end_no_run(strangers: int, nodes: int) -> None:
    many = agreement(strangers, 50.0, SAID, nodes=nodes)
    assert (many.returncode, many.stdout) == (0, "\n"), many.stderr


@pytest.mark.integration
def test_a_node_whose_word_comes_in_two_parts_is_heard() -> None:
    assert agreement(0, 5.0, SAID[:20], SAID[20:]).stdout == "\n"


def test_run_names_a_job_without_its_control_characters(tmp_path: Path) -> None:
    job = tmp_path / "train\x1b[31m\npreflight: ready.sh"
    job.write_text("#!/bin/sh\nexit 3\n")
    job.chmod(0o700)
    ran = ended(order_of((str(job),)), TMPDIR=str(tmp_path))
    assert ran.returncode == 3
    assert "exit code 3" in ran.stderr
    assert "\x1b" not in ran.stderr
    assert "\npreflight: ready" not in ran.stderr


def test_a_job_starts_where_proc_is_not_mounted(need: Callable[[str, bool, str], None]) -> None:
    need("mount", can_mount() and shutil.which("unshare") is not None, "/proc can be covered only by root")
    covered = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
    ran = ended([*covered, *order_of(("/bin/echo", "started"))])
    assert (ran.returncode, ran.stdout) == (0, "started\n"), ran.stderr


def test_the_folders_of_an_archive_count_as_its_files_do() -> None:
    folder = b"PK\x03\x04" + bytes(22) + (2).to_bytes(2, "little") + bytes(2) + b"d/"

    def stream() -> Iterator[bytes]:
        yield from itertools.repeat(folder, ARCHIVE.most_values + 1)
        yield b"PK\x05\x06" + bytes(18)

    with pytest.raises(MalformedInput, match=f"more than {ARCHIVE.most_values}"):
        list(members(folder, stream()))
