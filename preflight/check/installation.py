"""Read the state of this preflight installation, without importing torch."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import sysconfig
import time

import preflight_nccl
from preflight import __version__
from preflight.facts.nvidia_driver import probe_device_nodes
from preflight.facts.process import probe_software
from preflight.model.gap import Gap, known_or
from preflight.model.installation import HTML_MODULES, Installation, InstalledPart, Soundness
from preflight.model.repairs import shm_room
from preflight.model.units import size_text
from preflight.stuck.collect.stacks import find_py_spy, read_stacks
from preflight.system.crew import Crew
from preflight.system.installed import GET_TORCH, module_exists
from preflight.system.machine import Machine

OK, NOTE, PROBLEM = Soundness.OK, Soundness.NOTE, Soundness.PROBLEM
SHM = "/dev/shm"
SMALL_SHM_BYTES = 1 << 30  # a container has 64 MiB unless it is started with more
LOOK_S = 5.0
ALLOW = "run `stuck` as root or with --cap-add SYS_PTRACE, or set sysctl kernel.yama.ptrace_scope=0"
# A process that is no descendant of this one, as a rank is not, and that ends with this one.
STRANGER = (
    "import os, sys\npid = os.fork()\nif pid: print(pid, flush=True); os._exit(0)\nos.close(1); sys.stdin.read()\n"
)


def read_installation(machine: Machine, is_linux: bool) -> Installation:
    """Return the state of each part of this installation, as read on `machine`.

    If `is_linux` is true, the parts include the GPU driver, the permission to read stacks, and /dev/shm.
    """
    parts = [_own_files(), _python(), *_torch_and_driver(machine, is_linux)]
    if is_linux:
        parts += [_stacks(), _shm()]
    return Installation.of((*parts, *_extras(), _command()))


def _own_files() -> InstalledPart:
    where = os.path.join(preflight_nccl.HOME, "preflight")
    if damage := preflight_nccl.damage():
        return InstalledPart("preflight", PROBLEM, damage)
    files = list(preflight_nccl.own_files())
    broken = [name for name, size in files if preflight_nccl.size_now(name) != size]
    if broken:
        found = f"{__version__} in {where}: {broken[0]} and {len(broken) - 1} more are missing or changed"
        return InstalledPart("preflight", PROBLEM, found, f"`{preflight_nccl.REPAIR}`")
    others = preflight_nccl.neighbors(all_names=True)
    whole = f"{len(files)} files as installed" if files else "a checkout"
    if others:
        found = f"{__version__} in {where}, {whole}; {', '.join(others)} has files there too"
        return InstalledPart("preflight", NOTE, found, preflight_nccl.APART)
    return InstalledPart("preflight", OK, f"{__version__} in {where}, {whole}")


def _python() -> InstalledPart:
    return InstalledPart("Python", OK, f"{platform.python_version()}, {sys.executable}")


def _torch_and_driver(machine: Machine, is_linux: bool) -> list[InstalledPart]:
    torch = probe_software(machine).torch
    devices = probe_device_nodes(machine) if is_linux else None
    has_gpu = devices is not None and any(name[len("nvidia") :].isdigit() for name in devices.nvidia)
    if isinstance(torch, Gap):
        shown = InstalledPart("torch", NOTE, "not installed: no `check`, no `bench`", GET_TORCH)
    else:
        cuda = torch.other_build or (f"CUDA {torch.cuda}" if isinstance(torch.cuda, str) else "built without CUDA")
        nccl = f", NCCL {torch.nccl}" if isinstance(torch.nccl, str) else ""
        is_wrong = has_gpu and not isinstance(torch.cuda, str)
        fix = "install the torch of the job, with CUDA" if is_wrong else ""
        shown = InstalledPart(
            "torch", PROBLEM if is_wrong else OK, f"{torch.version}, {cuda}{nccl}, {torch.location}", fix
        )
    if devices is None:
        return [shown]
    version = known_or(devices.kernel_module, "")
    if has_gpu and not version:
        return [
            shown,
            InstalledPart("driver", PROBLEM, "/dev/nvidia* without a driver in the kernel", "modprobe nvidia"),
        ]
    found = f"NVIDIA {version}" if version else "no NVIDIA driver: `check` tests the CPU path only"
    return [shown, InstalledPart("driver", OK if version else NOTE, found)]


def _stacks() -> InstalledPart:
    """Return whether py-spy can read a process that is not a child of this process.

    The ranks of a job are never children of this process.
    """
    if find_py_spy() is None:
        return InstalledPart(
            "stacks", NOTE, "py-spy is not installed: `stuck` sees no Python stacks", "pip install py-spy"
        )
    stacks: object = Gap("the process to try it on did not start")
    with contextlib.suppress(OSError), Crew[str]() as crew:
        crew.start("stranger", [sys.executable, "-c", STRANGER], os.environ, LOOK_S)
        for _, pid, lost in crew.listen(LOOK_S):
            if lost is None:
                time.sleep(0.2)  # until its parent is gone
                stacks = read_stacks([pid], False, LOOK_S, os.getuid()).get(pid, Gap("no answer"))
    if isinstance(stacks, Gap):
        return InstalledPart("stacks", NOTE, f"not readable here: {stacks.reason}", ALLOW)
    return InstalledPart("stacks", OK, "py-spy can read other processes of this user")


def _shm() -> InstalledPart:
    try:
        stat = os.statvfs(SHM)
    except OSError as error:
        return InstalledPart(SHM, PROBLEM, f"{error.strerror}: NCCL needs it", "mount a tmpfs there")
    free_bytes = stat.f_bavail * stat.f_frsize
    if not os.access(SHM, os.W_OK):
        return InstalledPart(SHM, PROBLEM, "not writable for this user: NCCL needs it")
    small = free_bytes < SMALL_SHM_BYTES
    fix = shm_room(16).container if small else ""
    return InstalledPart(SHM, NOTE if small else OK, f"{size_text(free_bytes)} free", fix)


def _extras() -> list[InstalledPart]:
    missing = []
    if not all(map(module_exists, HTML_MODULES)):
        missing.append(("pages of HTML", "'preflight-nccl[html]'"))
    if not module_exists("zstandard"):
        missing.append(("logs in zstd", "'preflight-nccl[zstd]'"))
    if not module_exists("re2"):
        missing.append(("fast `explain`", "google-re2"))
    if not missing:
        return [InstalledPart("extras", OK, "HTML, zstd, google-re2")]
    wanted = f"pip install {' '.join(package for _, package in missing)}"
    return [InstalledPart("extras", NOTE, f"missing for {', '.join(what for what, _ in missing)}", wanted)]


def _command() -> InstalledPart:
    own = os.path.join(sysconfig.get_path("scripts"), "preflight")
    found = shutil.which("preflight")
    if found is None:
        return InstalledPart("command", NOTE, f"`preflight` is not on PATH: {own}")
    if os.path.realpath(found) != os.path.realpath(own):
        return InstalledPart("command", NOTE, f"`preflight` on PATH is {found}, of another Python than this one")
    return InstalledPart("command", OK, found)
