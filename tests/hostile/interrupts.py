"""Stop a check at every n-th line that Python runs: whatever was going on, the exit code is the signal's.

    python -m tests.hostile.interrupts [--loading 2000] [--running 20] [--offset 0] [--signal INT]

The check runs under a tracer. At every n-th line a copy of the process (a fork) sends itself the signal right there,
goes on untraced and ends as it will, with an earlier run's report in a directory of its own. Three stretches are
walked: from the first line of `main` until all is loaded, from there until the first process is started, and from the
writing of the results until the answer is out and signals are ignored. So a signal is met inside imports, classes that
are being made, callbacks of weak references and libraries' `except Exception`, where what a handler raises is wrapped,
or forgotten. Exit code 1 where a copy ended wrongly. As root, for the copies' own mounts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.command import Command

CHECK = ("check", "--backend", "gloo", "--nproc", "1", "--deadline", "60", "--also", "html=page.html")
OLD = '{"verdict": "ready", "exit_code": 0, "is": "an earlier run\'s"}'
AT_MOST_S = 30  # after which a copy that did not stop is ended by SIGALRM

# Runs in the traced process, whose modules must be as few as those of `python -m preflight`.
TRACER = r"""
import os, runpy, sys
import _signal
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
folder = sys.argv[1]
loading, running, offset, number, at_most_s = map(int, sys.argv[2:7])
del sys.argv[1:7]
lines, walking, forking, every = 0, False, False, loading
starts = {"main": loading, "invoke": running, "write_and_print": running}
if _signal.getsignal(number) == _signal.SIG_IGN:  # as under a shell's `&`
    _signal.signal(number, _signal.SIG_DFL)
log = os.open(os.path.join(folder, "points"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def audit(event, arguments):
    global walking
    if event in ("os.fork", "os.posix_spawn", "subprocess.Popen") and not forking:
        walking = False

def strike():
    here, place = os.getcwd(), os.path.join(folder, str(lines))
    os.mkdir(place)
    for name in os.listdir(here):
        with open(name, "rb") as source, open(os.path.join(place, name), "wb") as copy:
            copy.write(source.read())
    output = os.open(os.path.join(place, "output"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if every == loading:
        os.chdir(place)
    else:  # where its outputs go is known by their absolute paths
        libc = sys.modules["ctypes"].CDLL(None)
        libc.unshare(CLONE_NEWNS)
        libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        libc.mount(place.encode(), here.encode(), None, MS_BIND, None)
        os.chdir(here)
    _signal.alarm(at_most_s)

def trace(frame, event, argument):
    global lines, walking, forking, every
    code = frame.f_code
    if event == "call" and code.co_name in starts and "/preflight/" in code.co_filename:
        walking, every = True, starts.pop(code.co_name)
        if every == running:
            import ctypes  # for strike(); the program itself may need none by now
    if event != "line" or not walking:
        return trace
    lines += 1
    if lines % every == offset % every and _signal.getsignal(number) != _signal.SIG_IGN:
        forking = True
        pid = os.fork()
        forking = False
        if pid == 0:
            sys.settrace(None)
            strike()
            _signal.raise_signal(number)
            return None
        status = os.waitpid(pid, 0)[1]
        chain, up = [], frame
        while up is not None and len(chain) < 4:
            chain.append(f"{os.path.basename(up.f_code.co_filename)}:{up.f_lineno} {up.f_code.co_name}")
            up = up.f_back
        os.write(log, f"{lines}\t{os.waitstatus_to_exitcode(status)}\t{' < '.join(chain)}\n".encode())
    return trace

sys.addaudithook(audit)
sys.settrace(trace)
runpy.run_module("preflight", run_name="__main__", alter_sys=True)
"""


def walk(loading: int, running: int, offset: int, number: signal.Signals) -> tuple[int, list[str]]:
    """Return at how many points it was stopped, and what ended wrongly, with where the signal came."""
    folder = Path(tempfile.mkdtemp(prefix="preflight-interrupts-"))
    command = Command(sys.executable, folder)
    (folder / "tracer.py").write_text(TRACER)
    (command.cwd / "preflight-report.json").write_text(OLD)
    numbers = (loading, running, offset, int(number), AT_MOST_S)
    traced = [sys.executable, str(folder / "tracer.py"), str(folder), *map(str, numbers)]
    whole = subprocess.run(
        [*traced, *CHECK], cwd=command.cwd, env=command.environ(), check=False, capture_output=True,
        text=True,
    )  # fmt: skip
    points = [line.split("\t") for line in (folder / "points").read_text().splitlines()]
    wrong = [] if whole.returncode == 0 else [f"the traced run itself: exit {whole.returncode}: {whole.stderr[-300:]}"]
    for line, code, where in points:
        trouble = trouble_of(folder / line, int(code), number)
        if trouble:
            wrong.append(f"line {line}: {trouble}: {where}")
    codes = Counter(code for _, code, _ in points)
    sys.stdout.write(f"{len(points)} points from {offset}: codes {dict(codes)}, {len(wrong)} wrong\n")
    shutil.rmtree(folder, ignore_errors=True)
    return len(points), wrong


def trouble_of(place: Path, code: int, number: int) -> str:
    """Return what is wrong with how a copy ended."""
    output = (place / "output").read_text()
    if code != 128 + number:
        return f"exit {code}, {output[-300:]!r}"
    if "Traceback" in output or "Exception ignored" in output:
        return f"{output[-300:]!r}"
    text = (place / "preflight-report.json").read_text() if (place / "preflight-report.json").exists() else ""
    if text and text != OLD and json.loads(text)["exit_code"] != code:
        return f"exit {code}, the report says {json.loads(text)['exit_code']}"
    return ""


def main() -> int:
    """Walk once and print what ended wrongly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loading", type=int, default=2000, help="lines from one point to the next while it is loaded")
    parser.add_argument("--running", type=int, default=20, help="the same, from then on")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--signal", choices=("INT", "TERM", "HUP"), default="INT")
    asked = parser.parse_args()
    _, wrong = walk(asked.loading, asked.running, asked.offset, signal.Signals[f"SIG{asked.signal}"])
    for each in wrong:
        sys.stdout.write(f"  {each}\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
