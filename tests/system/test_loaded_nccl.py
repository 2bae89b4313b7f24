"""The version of NCCL comes from the library that is loaded, and a process without one has none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.system.loaded_nccl import loaded_nccl

ASKS = """
import ctypes, sys
from preflight.system.loaded_nccl import loaded_nccl
ctypes.CDLL(sys.argv[1])
print(loaded_nccl())
"""


def test_without_a_loaded_library_there_is_no_version() -> None:
    assert loaded_nccl() == ""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(("code", "version"), [(22809, "2.28.9"), (23203, "2.32.3"), (21000, "2.10.0")])
def test_the_loaded_library_is_asked(tmp_path: Path, code: int, version: str) -> None:
    source, library = tmp_path / "nccl.c", tmp_path / "another-name.so"
    source.write_text(f"int ncclGetVersion(int *version) {{ *version = {code}; return 0; }}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", library, source], check=True)
    ran = subprocess.run([sys.executable, "-c", ASKS, library], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == version
