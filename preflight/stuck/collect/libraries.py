"""The versions of the libraries that ranks have loaded.

The versions are read from the files in /proc/PID/maps, because pip's list may name other copies.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from preflight.errors import UnreadableFact
from preflight.facts.nvidia_driver import PROC, parse_module_version
from preflight.model.stuck_evidence import JobSoftware, LoadedLibrary
from preflight.stuck.collect.jobs import ListedProcess
from preflight.system.machine import Machine

# NCCL's own library, or torch's where NCCL is linked into it; the innermost name of a mapped file.
LIBRARIES = (re.compile(r"libnccl\.so[.\d]*"), re.compile(r"libtorch_cuda\.so"))
BUILT_AS = re.compile(rb"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})")
PIECE_BYTES, OVERLAP_BYTES = 1 << 20, 64
CHOOSERS = ("VLLM_NCCL_SO_PATH", "LD_PRELOAD")  # variables that choose a library
GPUS = "proc/driver/nvidia/gpus"
MODEL = re.compile(r"^Model:\s*(\S[^\n]{0,80})$", re.MULTILINE)


class Named(NamedTuple):
    """A row of the table of libraries, with patterns for the file name and for the version in the file."""

    component: str
    name: re.Pattern[str]
    version: re.Pattern[bytes]
    file: str = ""  # from the library's folder; "" = the library itself


OTHERS = (
    Named("torch", re.compile(r"libtorch_cpu\.so"), re.compile(rb"__version__ = '(\d[\w.+]{0,40})'"), "../version.py"),
    Named(
        "aws-ofi-nccl", re.compile(r"libnccl-net(?:-ofi)?\.so[.\d]*"),
        re.compile(rb"aws-ofi-nccl (\d{1,3}\.\d{1,3}\.\d{1,3})"),
    ),
)  # fmt: skip


def read_software(machine: Machine, ranks: Sequence[ListedProcess]) -> JobSoftware:
    """Return the libraries that `ranks` have mapped, with their versions, and the node's CPU, kernel and GPUs."""
    found: dict[tuple[str, str], LoadedLibrary] = {}
    versions: dict[tuple[str, str, str], str] = {}  # ranks of one container map one file
    for each in ranks:
        with contextlib.suppress(UnreadableFact):
            root = f"/proc/{each.pid}/root"
            for library in libraries_in(machine.text(f"proc/{each.pid}/maps")):
                key = library.component, library.path, _same_root(root)
                if key not in versions:
                    versions[key] = _version_of(library, root)
                known = found.setdefault(
                    (library.path, versions[key]),
                    replace(library, version=versions[key], how=chosen_by(library.path, each)),
                )
                found[library.path, versions[key]] = replace(known, pids=(*known.pids, each.pid))
    kernel, architecture, driver, gpus = "", "", "", []
    with contextlib.suppress(UnreadableFact):
        uname = machine.ask("uname")
        kernel, architecture = str(uname["release"]), str(uname["machine"])
    with contextlib.suppress(UnreadableFact):
        driver = parse_module_version(machine.text(PROC))
    with contextlib.suppress(UnreadableFact):
        for name in machine.names(GPUS):
            gpus += MODEL.findall(machine.text(f"{GPUS}/{name}/information"))
    return JobSoftware(tuple(found.values()), architecture, kernel, driver, tuple(gpus))


def _same_root(root: str) -> str:
    """Return a key of a root directory: its device and inode. All ranks of one container have the same key."""
    try:
        status = os.stat(root)
    except OSError:
        return root
    return f"{status.st_dev}:{status.st_ino}"


def libraries_in(maps: str) -> tuple[LoadedLibrary, ...]:
    """Return the loaded libraries that may have known bugs.

    `maps` is the text of /proc/PID/maps. The versions of the libraries are still empty.
    """
    nccl = [LoadedLibrary("NCCL", "", path) for path in mapped_libraries(maps)]
    others = [
        LoadedLibrary(each.component, "", path)
        for path in _mapped_files(maps)
        for each in OTHERS
        if each.name.fullmatch(os.path.basename(path))
    ]
    return (*nccl, *others)


def _version_of(library: LoadedLibrary, root: str) -> str:
    """Return the version in the file of a library, or "" if the file contains no version."""
    row = next((each for each in OTHERS if each.component == library.component), None)
    if row is None:
        return read_nccl_version(f"{root}{library.path}")
    path = os.path.normpath(os.path.join(os.path.dirname(library.path), row.file)) if row.file else library.path
    return find_in_file(f"{root}{path}", row.version)


def chosen_by(path: str, process: ListedProcess) -> str:
    """Return the environment variable that made `process` load the library at `path`.

    If there is no such variable, return "".
    """
    for variable in CHOOSERS:
        for each in re.split(r"[:\s]+", process.places.get(variable, "")):
            same = os.path.dirname(each) == os.path.dirname(path)
            if same and os.path.basename(each).partition(".so")[0] == os.path.basename(path).partition(".so")[0]:
                return variable
    return ""


def mapped_libraries(maps: str) -> tuple[str, ...]:
    """Return the paths of the mapped files that contain NCCL. `maps` is the text of /proc/PID/maps."""
    # A file is NCCL's own library, or torch's library with NCCL linked in.
    mapped = _mapped_files(maps)
    for pattern in LIBRARIES:
        if found := tuple(path for path in mapped if pattern.fullmatch(os.path.basename(path))):
            return found
    return ()


def _mapped_files(maps: str) -> tuple[str, ...]:
    lines = (line.split(maxsplit=5) for line in maps.splitlines())
    return tuple(dict.fromkeys(parts[5] for parts in lines if len(parts) == 6 and parts[5].startswith("/")))


def read_nccl_version(path: str) -> str:
    """Return the NCCL version in the library file `path`, or "" if there is no version or the file can't be read."""
    return find_in_file(path, BUILT_AS)


def find_in_file(path: str, pattern: re.Pattern[bytes]) -> str:
    """Return the first group of the first match of `pattern` in the file `path`.

    Return "" if there is no match, or if `path` can't be read or is not a regular file.
    """
    with (
        contextlib.suppress(OSError),
        os.fdopen(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0) as place,
    ):
        if not stat.S_ISREG(os.fstat(place.fileno()).st_mode):
            return ""
        with open(f"/proc/self/fd/{place.fileno()}", "rb", buffering=0) as file:
            before = b""
            while piece := file.read(PIECE_BYTES):
                if found := pattern.search(before + piece):
                    return found[1].decode()
                before = piece[-OVERLAP_BYTES:]
    return ""
