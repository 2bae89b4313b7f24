"""The worked examples of docs/dev/architecture.md are changes that still apply, and do what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

PAGE = PROJECT / "docs" / "dev" / "architecture.md"
DIFFS = re.findall(r"^```diff\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
EXPECTS = """
from preflight.judge.policy import parse_policy
print(parse_policy("[expect]\\ncpu_count = 128", "site.toml", (), "2026-11-23").expect)
"""
PLACED = """
from preflight.explain.launchers import VARIABLES, launcher_of, way
from preflight.model.launchers import NODE_COUNTS
from preflight.stuck.collect.jobs import JOB_VARIABLES
from preflight.trial.nodes.placement import Asked, find_placement
environ = {"PBS_NODENUM": "1", "PBS_NUM_NODES": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
place = find_placement(Asked(), environ)
print(place.nodes, place.node_rank, place.host, ("PBS_JOBID",) in JOB_VARIABLES, "PBS_NUM_NODES" in NODE_COUNTS)
print(*way(VARIABLES, {launcher_of("=>> PBS: job killed: walltime 3632 exceeded limit 3600")}))
"""


@pytest.mark.parametrize(
    ("diff", "asks", "said"),
    [
        (0, EXPECTS, "{'cpu_count': 128}\n"),
        (1, PLACED, "2 1 node0 True True\nUnder PBS pass variables with qsub -v NAME=VALUE.\n"),
    ],
    ids=["policy-key", "scheduler"],
)
def test_a_row_is_all_that_something_new_takes(tmp_path: Path, diff: int, asks: str, said: str) -> None:
    shutil.copytree(PROJECT / "preflight", tmp_path / "preflight", ignore=shutil.ignore_patterns("__pycache__"))
    patch = ["git", "apply", "--directory", str(tmp_path.relative_to("/")), "--unsafe-paths", "-"]
    before = subprocess.run([sys.executable, "-c", asks], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert before.stdout != said, "it is known without the change"
    subprocess.run(patch, cwd="/", input=DIFFS[diff], text=True, check=True)
    after = subprocess.run([sys.executable, "-c", asks], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert after.stdout == said, after.stderr
    assert DIFFS[diff].count("\n+++ ") == 1, "one file of the product"
