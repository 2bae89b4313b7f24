"""`preflight check --backend nccl` on a simulated machine: torch's CUDA build, the real NCCL, and no stub between.

`python -m tests.simcuda.sandbox --machine pcie4-2numa [VAR=VALUE ...] -- check --gpus 0,1 --backend nccl`. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.simcuda.machine import Machine, install, named
from tests.simcuda.places import PROJECT, python
from tests.simcuda.run import CHANNEL, sandboxed

LEFT_OUT = ("NCCL_", "GLOO_", "TORCH_", "SIMCUDA_", "CUDA_", "COLUMNS", "PYTHONDONTWRITEBYTECODE")
SITE = Path(__file__).with_name("site")
# What stands in /dev of a machine with NVIDIA's driver, on a tmpfs; then the command; then what it left behind.
SCRIPT = r"""
mkdir -p {place}/dev && mount -t tmpfs tmpfs {place}/dev
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty {place}/dev/ && ln -s /proc/self/fd {place}/dev/fd
mkdir {place}/dev/infiniband {place}/dev/shm {place}/dev/pts
mount --move /dev/shm {place}/dev/shm && mount --bind /dev/pts {place}/dev/pts
touch {nodes} && mount --rbind {place}/dev /dev
"$@"; code=$?
sleep 0.2
ls /dev/shm > {place}/left-shm
for each in /proc/[0-9]*; do
    pid=${{each#/proc/}}; [ $pid = 1 ] || [ $pid = $$ ] || tr '\0' ' ' < $each/cmdline
done > {place}/left-processes 2>/dev/null
exit $code
"""


@dataclass(frozen=True, slots=True)
class Checked:
    """How preflight ended on the machine, and what it left there."""

    code: int
    stdout: str
    stderr: str
    took_s: float
    place: Path
    left_processes: str
    left_shm: str

    @property
    def report(self) -> dict[str, Any]:
        """The report that it wrote."""
        document: dict[str, Any] = json.loads((self.place / "cwd/preflight-report.json").read_text())
        return document

    def sourced(self, host: str) -> dict[str, str]:
        """Return NCCL's variables that the .env exports to who sources it on a host of this name."""
        script = f"uname() {{ echo {shlex.quote(host)}; }}; . ./preflight.env; env"
        done = subprocess.run(
            ["sh", "-c", script], cwd=self.place / "cwd", env={"PATH": os.environ["PATH"]},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith("NCCL_"))

    def trial(self, candidate: str) -> dict[str, Any]:
        """Return a trial of the report."""
        return next(each for each in self.report["trials"] if each["candidate"] == candidate)

    def gpu_test_processes(self) -> int:
        """Return how many processes tested GPUs, of which each has a log of its own (--keep)."""
        run_dir = Path(self.trial("default")["trial_env"]["NCCL_DEBUG_FILE"]).parent.parent
        return len(list(run_dir.glob("logs/*.gpu_tests.rank*.log")))

    def logged(self, candidate: str) -> set[str]:
        """Return the paths between ranks as NCCL's own logs of a trial have them (--keep)."""
        pattern = Path(self.trial(candidate)["trial_env"]["NCCL_DEBUG_FILE"])
        found = set()
        for log in pattern.parent.glob(pattern.name.replace("%h", "*").replace("%p", "*")):
            for channel in CHANNEL.finditer(log.read_text(errors="replace")):
                found.add(f"{channel['a']}>{channel['b']} via {channel['via'].split(' comm ')[0].strip()}")
        return found

    def __str__(self) -> str:
        return f"exit {self.code} after {self.took_s:.0f} s\n{self.stdout}\n{self.stderr}"


@dataclass
class Sandbox:
    """A simulated machine on which a module runs as on one of its own; `prefix` enters a network that is there."""

    machine: Machine
    place: Path
    shm_bytes: int | None = None
    prefix: Sequence[str] = ()
    python: str = field(default_factory=lambda: str(python()))
    module: str = "preflight"

    def environ(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a user of this machine."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
        for folder in ("tmp", "cwd"):
            (self.place / folder).mkdir(exist_ok=True, parents=True)
        own = {"PYTHONPATH": f"{PROJECT}:{SITE}", "TMPDIR": str(self.place / "tmp"), "HOME": str(self.place / "cwd")}
        # Too small for the larger product that GPUs are tested with, which would take a CPU a minute.
        memory = {} if self.machine.has_nvls else {"MEMORY_MIB": "448"}
        machine = replace(self.machine, settings=memory | dict(self.machine.settings))
        return inherited | install(machine, self.place, torch=True) | own | dict(env or {})

    @contextlib.contextmanager
    def started(self, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
        """Give preflight as it runs in the sandbox; afterwards nothing of it is left."""
        process = self._start(*arguments, env=env)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()  # the first process of a PID namespace: all others go with it
            process.communicate()

    def _start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        environ = self.environ(env)
        names = ["nvidiactl", "nvidia-uvm", *(f"nvidia{i}" for i in range(len(self.machine.gpus)))]
        if self.machine.has_adapters:
            names += [f"infiniband/uverbs{i}" for i in range(len(self.machine.node["nics"]))]
        nodes = " ".join(f"{self.place}/dev/{name}" for name in names)
        script = SCRIPT.format(place=self.place, nodes=nodes)
        inner = ["sh", "-c", script, "sandbox", self.python, "-m", self.module, *arguments]
        outer = sandboxed(inner, self.machine, self.place, self.shm_bytes, own_network=not self.prefix)
        return subprocess.Popen(
            [*self.prefix, *outer], env=environ, cwd=self.place / "cwd", text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace", start_new_session=True,
        )  # fmt: skip

    def finish(self, process: subprocess.Popen[str], since: float, limit_s: float = 200) -> Checked:
        """Wait for a started preflight and return how it ended."""
        try:
            stdout, stderr = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
        left = [self.place / name for name in ("left-processes", "left-shm")]
        told = [path.read_text() if path.exists() else "never came to an end" for path in left]
        return Checked(process.returncode, stdout, stderr, time.monotonic() - since, self.place, *told)

    def run(self, *arguments: str, env: Mapping[str, str] | None = None, limit_s: float = 200) -> Checked:
        """Run preflight to its end."""
        since = time.monotonic()
        with self.started(*arguments, env=env) as process:
            return self.finish(process, since, limit_s)


def main() -> int:
    """Run preflight on a named machine and print what it says and leaves."""
    parser = argparse.ArgumentParser(prog="python -m tests.simcuda.sandbox", description=__doc__)
    parser.add_argument("--machine", default="pcie4-2numa")
    parser.add_argument("--shm-mib", type=int)
    parser.add_argument("--place", help="a folder to keep; otherwise all is removed")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="VAR=VALUE ... -- ARGUMENTS")
    options = parser.parse_args()
    at = options.words.index("--") if "--" in options.words else 0
    env = dict(word.split("=", 1) for word in options.words[:at])
    with tempfile.TemporaryDirectory(prefix="simcuda-") as folder:
        place = Path(options.place or folder)
        shm_bytes = options.shm_mib << 20 if options.shm_mib is not None else None
        ran = Sandbox(named(options.machine), place, shm_bytes).run(*options.words[at:][1:], env=env, limit_s=1000)
        sys.stdout.write(f"{ran}\nleft: {ran.left_processes.split()} {ran.left_shm.split()}\n")
    return ran.code


if __name__ == "__main__":
    sys.exit(main())
