"""Kill a process of a check at a random instant, again and again: nothing is left, and what is reported is honest.

    python -m tests.hostile.kill_loop --kills 40 [--seed S] [--abreast 2]     each with a /dev/shm of its own
    python -m tests.hostile.kill_loop --at-once 30                            so many whole checks in one directory

The seed of every kill is printed; `--kills 1 --seed S` repeats one. A run that ended before its instant is repeated
with half the wait, one that Python ended in its own start with a longer one: every kill counted hit preflight. As root,
for the private /dev/shm. Exit code 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tests.command import Command

CHECK = ("check", "--backend", "simnccl@simnccl", "--nproc", "2", "--deadline", "90")
OLD = '{"verdict": "ready", "exit_code": 0, "is": "an earlier run\'s"}'
LONGEST_S = 4.0  # after which a check on a free machine is through: later instants would kill nothing
SHORTEST_S = 0.01
# Python answers with 1, whatever the program is.
IN_PYTHONS_START = ("Fatal Python error: init_", "Could not import runpy module")
LATER_S = 0.3
GONE_WITHIN_S = 20.0
END_WITHIN_S = 110.0
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV)
OWN_SHM = 'mount -t tmpfs none /dev/shm && "$@"; code=$?; ls /dev/shm > shm.txt; exit $code'
CODES = {"ready": 0, "ready_with_env": 0, "not_ready": 1, "unknown": 3}


@dataclass(frozen=True, slots=True)
class Kill:
    """Which signal one process of a check gets, and when."""

    seed: int
    number: signal.Signals
    from_start: bool  # else from when the parent of the ranks is there
    at_s: float
    part: float  # which of the processes that are there

    @classmethod
    def drawn(cls, seed: int) -> Kill:
        """Draw one."""
        random_ = random.Random(seed)
        from_start, number = random_.random() < 0.3, random_.choice(SIGNALS)
        return cls(seed, number, from_start, random_.uniform(0, LONGEST_S), random_.random())

    def strike(self, command: Command, process: subprocess.Popen[str]) -> tuple[int, str, bool]:
        """Wait for the instant and send the signal; return to whom (0: nobody), its name, and if it was the first."""
        while not (self.from_start or process.poll() is not None):
            if any(line.startswith("preflight-r") for line in command.processes().values()):
                break
            time.sleep(0.05)
        time.sleep(self.at_s)
        while not (ours := own(command)) and process.poll() is None:  # on a busy machine nobody is there yet
            time.sleep(0.01)
        if not ours:
            return 0, "nobody", False
        victim = sorted(ours)[int(self.part * len(ours))]
        try:
            is_first = parent_of(victim) not in ours  # by their numbers nothing is known: those begin anew
            os.kill(victim, self.number)
        except (FileNotFoundError, ProcessLookupError):
            return 0, "nobody", False
        return victim, ours[victim], is_first and "preflight check" in ours[victim]


def own(command: Command) -> dict[int, str]:
    """Return the processes of a check, without the shell around it."""
    return {pid: line for pid, line in command.processes().items() if "preflight" in line and "sh -c" not in line}


def parent_of(pid: int) -> int:
    """Return who started a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def one_kill(kill: Kill) -> str:
    """Start a check, kill one of its processes, and return which promise was broken, or ""."""
    folder = Path(tempfile.mkdtemp(prefix="preflight-kill-"))
    command = Command(sys.executable, folder)
    (command.cwd / "preflight-report.json").write_text(OLD)
    (command.cwd / "preflight.env").write_text("# an earlier run's\n")
    with (folder / "stderr").open("w") as stderr:
        process = command.start(*CHECK, prefix=("unshare", "--mount", "sh", "-c", OWN_SHM, "sh"),
                                stdout=subprocess.DEVNULL, stderr=stderr)  # fmt: skip
    what = f"seed {kill.seed}: {kill.number.name} after {kill.at_s:.2f} s"
    try:
        victim, name, is_launcher = kill.strike(command, process)
        what += f" to {'the launcher' if is_launcher else repr(name.split('python', 1)[-1][-70:])}"
        code = process.wait(timeout=END_WITHIN_S)
        command.wait_until_gone(GONE_WITHIN_S)
        printed = (folder / "stderr").read_text()
        what += f": exit {code}"
        if code == 1 and printed.startswith(IN_PYTHONS_START):
            victim, wrong = 0, ""
            what += " by Python, before a line of preflight ran"
        else:
            wrong = broken_promise(command.cwd, code, is_launcher, kill.number)
            wrong += wrong and f", after {printed[-2000:]!r}"
    except (subprocess.TimeoutExpired, AssertionError) as error:
        victim, wrong = 1, f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        command.kill_all()
        shutil.rmtree(folder, ignore_errors=True)
    say(f"  {what}{': ' + wrong if wrong else ''}")
    too_late = "nobody" in what
    if not victim and not wrong and (not too_late or kill.at_s > SHORTEST_S):
        return one_kill(replace(kill, at_s=kill.at_s / 2 if too_late else kill.at_s + LATER_S))
    wrong = wrong or ("" if victim else "nobody was hit")
    return f"{what}: {wrong}" if wrong else ""


def broken_promise(cwd: Path, code: int, is_launcher: bool, number: int) -> str:
    """Return what is left or untrue after a run, "" where all is as promised."""
    by_signal = is_launcher and code == 128 + number
    if (code not in (0, 1, 3) and not by_signal) or (is_launcher and number == signal.SIGINT and code == 3):
        return f"exit code {code}"
    left = [name for name in (cwd / "shm.txt").read_text().split() if name.startswith("nccl-")]
    silently = is_launcher and number in (signal.SIGKILL, signal.SIGSEGV)  # then nobody can clean up or write
    if left and not silently:
        return f"left in /dev/shm: {left}"
    if not (cwd / "preflight-report.json").exists():  # set aside, since this run could write none
        return "" if code not in (0, 1) else "no report"
    text = (cwd / "preflight-report.json").read_text()
    if text == OLD:
        return "" if silently or by_signal else "an earlier run's report stayed"
    report = json.loads(text)
    if silently:  # written before it was killed, or what holds in that case
        return "" if CODES[report["verdict"]] == report["exit_code"] else "the report contradicts itself"
    return "" if report["exit_code"] == code else f"the report says {report['exit_code']}, the exit code is {code}"


def kill_loop(kills: int, seed: int, abreast: int) -> list[str]:
    """Return the promises that were broken in so many kills, `abreast` of them at a time."""
    with ThreadPoolExecutor(max(1, abreast)) as pool:
        return [wrong for wrong in pool.map(one_kill, (Kill.drawn(seed + i) for i in range(kills))) if wrong]


def at_once(count: int) -> list[str]:
    """Run so many checks at once in one directory; return which of them were not whole."""
    folder = Path(tempfile.mkdtemp(prefix="preflight-at-once-"))
    command = Command(sys.executable, folder)
    argv = ("check", "--backend", "gloo", "--nproc", "2", "--deadline", "600", "--stage-limit", "120")
    runs = [
        command.start(*argv, "--also", "drain=drain.txt", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(count)
    ]
    codes = [run.wait(timeout=900) for run in runs]
    names = sorted(os.listdir(command.cwd))
    path = command.cwd / "preflight-report.json"
    report = json.loads(path.read_text()) if path.exists() else {"verdict": "no report"}
    broken = [f"exit codes {sorted(codes)}"] if set(codes) != {0} else []
    if report["verdict"] != "ready" or names != ["drain.txt", "preflight-report.json", "preflight.env"]:
        broken.append(f"{report['verdict']}, files {names}")
    shutil.rmtree(folder, ignore_errors=True)
    return broken


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the loop, print every seed, and tell whether a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=0)
    parser.add_argument("--abreast", type=int, default=1)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored, by our children as well
    broken = kill_loop(asked.kills, asked.seed, asked.abreast) + (at_once(asked.at_once) if asked.at_once else [])
    say(f"{asked.kills} kills, {asked.at_once} at once: {len(broken)} broken promises")
    for each in broken:
        say(f"  {each}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
