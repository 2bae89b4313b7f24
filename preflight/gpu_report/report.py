"""Run the parts of a GPU report, each with a time limit. After each part, write the results to an archive."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from preflight import __version__
from preflight.gpu_report.parts import ReportPart
from preflight.gpu_report.privacy import Privacy
from preflight.system.child import REAP_S, start_program
from preflight.system.files import write_bytes_atomically

FOLDER = "preflight-gpu"
SUMMARY = "summary.json"
MOST_FILE_BYTES = 1 << 20
MOST_BYTES = 19 << 20  # before compression, so that the archive has at most 20 MB
MOST_FILES = 200  # of one part
LEAST_S = 5.0
LOOK_S = 0.05
IN_FOLDER = 'cd "$1" && shift && exec "$@"'
TUNING = ("NCCL_", "TORCH_NCCL_", "GLOO_")
CUT = b"\n... (cut here) ...\n"


@dataclass(frozen=True, slots=True)
class PartResult:
    """The result of one part of a GPU report.

    `outcome` is "passed", "found" (a problem of the machine), "failed", "timed out" or "not run".
    """

    # The exit codes 1 and 3 of `check`, `bench` and `probe` give "found", because the command says something about the
    # machine.

    name: str
    answers: str
    outcome: str
    code: int | None = None
    took_s: float = 0.0
    why: str = ""


def run_parts(
    parts: Sequence[ReportPart],
    uuids: Sequence[str],
    archive: str,
    until: float,
    environ: Mapping[str, str],
    tell: Callable[[PartResult], object],
) -> tuple[PartResult, ...]:
    """Run the parts on the GPUs `uuids`, and write the archive after each part.

    The parts must end before the time `until`, in seconds of the monotonic clock. The function `tell` is called with
    each result.
    """
    # If this process is killed, the archive has the parts that ended before.
    results = tuple(PartResult(part.name, part.answers, "not run", why="not reached") for part in parts)
    privacy = Privacy([socket.gethostname(), socket.getfqdn()], environ.get("HOME", ""), environ)
    own = {name: value for name, value in environ.items() if not name.startswith(TUNING)}
    own |= {"CUDA_VISIBLE_DEVICES": ",".join(uuids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if uuids else {}
    folder = Path(tempfile.mkdtemp(prefix="preflight-gpu-"))
    packed: dict[str, bytes] = {}
    try:
        _write(archive, results, packed)
        for place, part in enumerate(parts):
            result = _run(part, folder / part.name, len(uuids), until, own | dict(part.env))
            results = (*results[:place], result, *results[place + 1 :])
            packed |= _files(folder / part.name, privacy, MOST_BYTES - sum(map(len, packed.values())))
            shutil.rmtree(folder / part.name, ignore_errors=True)
            _write(archive, results, packed)
            tell(result)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def _run(part: ReportPart, folder: Path, gpus: int, until: float, environ: Mapping[str, str]) -> PartResult:
    result = PartResult(part.name, part.answers, "not run")
    limit_s = min(part.limit_s, until - time.monotonic())
    if part.program and not shutil.which(part.program):
        return replace(result, why=f"{part.program} is not installed")
    if gpus < part.least_gpus:
        return replace(result, why=f"it needs {part.least_gpus} GPUs")
    if limit_s < LEAST_S:
        return replace(result, why="the time for all parts was over")
    folder.mkdir()
    since = time.monotonic()
    command = ("/bin/sh", "-c", IN_FOLDER, "sh", str(folder), *part.within(limit_s))
    log = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        child = start_program(command, {**environ, "TMPDIR": str(folder)}, log, is_asked=False)
    finally:
        os.close(log)
    try:
        while not child.has_ended() and time.monotonic() - since < limit_s:
            time.sleep(LOOK_S)
        is_late = not child.has_ended()
    finally:  # Ctrl-C too
        child.kill_group()
        child.reap_group(time.monotonic() + REAP_S)
    took_s, code = round(time.monotonic() - since, 1), child.exitcode
    if is_late:
        return replace(result, outcome="timed out", took_s=took_s, why=f"it had {limit_s:.0f} s")
    is_check = part.ends_before_s or part.name == "probe"
    outcome = "passed" if code == 0 else "found" if is_check and code in (1, 3) else "failed"
    return replace(result, outcome=outcome, code=code, took_s=took_s, why=f"exit code {code}" if code else "")


def _files(folder: Path, privacy: Privacy, room: int) -> dict[str, bytes]:
    """Return {name in the archive: content} for a part's output files.

    Private names are removed. The contents have at most `room` bytes in total.
    """
    found: dict[str, bytes] = {}
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    for path in sorted(paths, key=lambda path: (len(path.parts), path))[:MOST_FILES]:
        data = privacy.text(_ends(path).decode("utf-8", "backslashreplace")).encode()
        if room < len(data):
            break
        room -= len(data)
        found[privacy.text(f"{folder.name}/{path.relative_to(folder)}")] = data
    return found


def _ends(path: Path) -> bytes:
    """Return a file's content. For a long file, return only the beginning and the end."""
    with open(path, "rb") as file:
        size, half = os.fstat(file.fileno()).st_size, MOST_FILE_BYTES // 2
        if size <= MOST_FILE_BYTES:
            return file.read()
        first = file.read(half)
        file.seek(size - half)
        return first + CUT + file.read(half)


def _write(archive: str, results: Sequence[PartResult], packed: Mapping[str, bytes]) -> None:
    summary = {"preflight": __version__, "parts": [asdict(result) for result in results]}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in {SUMMARY: json.dumps(summary, indent=1).encode(), **packed}.items():
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o644, int(time.time())
            tar.addfile(entry, io.BytesIO(data))
    write_bytes_atomically(archive, buffer.getvalue())
