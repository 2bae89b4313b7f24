"""The import contracts really fail when they are broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent

BREAKS = [
    ("Imports point down only", "preflight/model/facts.py", "import preflight.plan.search"),
    ("Imports point down only", "preflight/judge/memlock.py", "import preflight.render.text"),
    ("Only rank imports torch", "preflight/launch/launcher.py", "import torch"),
    ("Pure packages do no I/O", "preflight/judge/memlock.py", "import os"),
    ("Pure packages do no I/O", "preflight/render/text.py", "import subprocess"),
]


@pytest.mark.integration
@pytest.mark.parametrize(("contract", "file", "line"), BREAKS, ids=[f"{file}-{line}" for _, file, line in BREAKS])
def test_a_broken_contract_is_found(tmp_path: Path, contract: str, file: str, line: str) -> None:
    shutil.copytree(PROJECT / "preflight", tmp_path / "preflight", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    with (tmp_path / file).open("a") as source:
        source.write(f"\n{line}\n")
    linter = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run(
        [linter, "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert f"{contract} BROKEN" in ran.stdout


@pytest.mark.integration
def test_no_file_is_longer_than_it_may_be() -> None:
    too_long = {
        str(path.relative_to(PROJECT)): lines
        for folder in ("preflight", "tests", "scripts")
        for path in (PROJECT / folder).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 300
    }
    assert too_long == {}
