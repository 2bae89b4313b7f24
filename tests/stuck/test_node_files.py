"""What nodes write for each other: private, whole, and taken by `preflight explain` beside the logs of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.model.input_limits import STUCK_NODE
from preflight.stuck.node_files import read_nodes, write_node
from tests.stuck.evidence import SAVE, four, process, rank

PROJECT = Path(__file__).resolve().parents[2]
LOG = """step 41 loss 0.61
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB
"""


def test_what_a_node_wrote_comes_back_as_it_was(tmp_path: Path) -> None:
    evidence = four(rank(2, process(102, SAVE)), host="n/0")
    path = Path(write_node(str(tmp_path), evidence))
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent == tmp_path
    assert read_nodes(str(tmp_path)) == ((evidence,), ())


def test_half_a_file_is_told_and_left_out(tmp_path: Path) -> None:
    path = Path(write_node(str(tmp_path), four(rank(2))))
    path.write_text(path.read_text()[:200])
    nodes, problems = read_nodes(str(tmp_path))
    assert nodes == () and problems[0].startswith(path.name)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 5000, "nested too deeply"),
        ("[" + "[]," * (STUCK_NODE.most_values + 1) + "[]]", "values, which no node's evidence has"),
        ("9" * 5000, "a number is too long"),
        (" " * (STUCK_NODE.most_bytes + 1), "larger than 32 MiB"),
    ],
)
def test_a_file_that_costs_too_much_is_told_and_left_out(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "stuck-n0.json").write_text(text)
    nodes, (problem,) = read_nodes(str(tmp_path))
    assert nodes == () and problem.startswith("stuck-n0.json: ") and why in problem


def test_a_pipe_that_nobody_writes_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stuck-n0.json")
    assert read_nodes(str(tmp_path)) == ((), ("stuck-n0.json: no regular file",))


def test_explain_says_what_was_seen_while_the_job_hung(tmp_path: Path) -> None:
    write_node(str(tmp_path), four(rank(2, process(102, SAVE))))
    (tmp_path / "rank0.log").write_text(LOG)
    command = [sys.executable, "-m", "preflight", "explain", str(tmp_path)]
    ran = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)
    words = " ".join(ran.stdout.split())
    assert "Rank 0 ran out of GPU memory" in words
    assert "else: Rank 2 on n0 is writing a checkpoint: torch.save" in words and "stuck-n0.json" not in words
    assert ran.returncode == 1
