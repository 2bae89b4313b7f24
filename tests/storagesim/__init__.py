"""A directory that stalls, is slow, has a quota, or knows no O_DIRECT or O_TMPFILE: a library for LD_PRELOAD."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("storagesim.c")


BUILT: list[tempfile.TemporaryDirectory[str]] = []  # each goes when the process ends


@functools.cache
def library() -> Path:
    """Compile the library once per process."""
    folder = tempfile.TemporaryDirectory(prefix="storagesim-")
    BUILT.append(folder)
    out = Path(folder.name) / "libstoragesim.so"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", str(out), str(SOURCE), "-ldl"], check=True)
    return out
