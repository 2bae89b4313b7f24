"""The corpus of real machines and failures beside the project, which is no part of it; tests skip where it is not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("PREFLIGHT_SHARED") or PROJECT.parent / "shared")
CORPUS = SHARED / "corpus"

# Of the recorded trees, what no probe reads: the archives unpack in a tenth of the time without it.
UNUSED = ("*/cpu[0-9]*/*", "*/memory[0-9]*", "*/hugepages*", "*/power/*", "*/block/*", "*/firmware/*")


def corpus_files(folder: str, pattern: str) -> list[Path]:
    """Return the files of a folder of the corpus, none where there is no corpus."""
    return sorted((CORPUS / folder).glob(pattern))


def need_corpus(path: Path) -> Path:
    """Return the path, or skip where it is not there."""
    if not path.exists():
        pytest.skip(f"{path} is not there: the corpus is not part of the repository (PREFLIGHT_SHARED names its place)")
    return path


def unpack(archive: Path, where: Path) -> list[Path]:
    """Unpack a recorded tree and return its roots, the directories that hold a `sys`."""
    excluded = [f"--exclude={pattern}" for pattern in UNUSED]
    subprocess.run(["tar", "xf", str(need_corpus(archive)), "-C", str(where), *excluded], check=True)
    return sorted(
        path.parent
        for path in where.rglob("sys")
        if len(path.relative_to(where).parts) < 5 and ((path / "devices").is_dir() or (path / "class").is_dir())
    )
