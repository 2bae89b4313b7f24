"""The examples of docs/python.md and of scripts/examples run as they stand there, and pass mypy --strict outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.system.installed import installed_versions
from tests.conftest import PROJECT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

EXAMPLE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = (PROJECT / "docs" / "python.md").read_text(encoding="utf-8")
FILES = sorted((PROJECT / "scripts" / "examples").glob("*.py"))
EXAMPLES = dict(EXAMPLE.findall(PAGE)) | {path.name: path.read_text(encoding="utf-8") for path in FILES}
TORCHRUN = (
    "-m",
    "torch.distributed.run",
    "--nproc-per-node",
    "2",
    "--rdzv-backend",
    "c10d",
    "--rdzv-endpoint",
    "127.0.0.1:0",
)
MYPY = """[mypy]
strict = true
[mypy-torch.*,accelerate.*,lightning.*,transformers.*,ray.*]
ignore_missing_imports = true
follow_imports = skip
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with all examples."""
    for name, text in EXAMPLES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "tmp").mkdir()
    return tmp_path


def run(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    left_out = ("NCCL_", "GLOO_", "TORCH_", "PREFLIGHT", "SLURM", "PET_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    own = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TMPDIR": str(folder / "tmp"),
        "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
        "ACCELERATE_USE_CPU": "true",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=kept | own | more,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def test_start_checks_and_becomes_torchrun_with_what_was_tried(folder: Path) -> None:
    ran = run(folder, "start.py")
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert [ran.stdout.count(f"rank {rank} of 2") for rank in range(2)] == [1, 1], ran.stdout  # lines of ranks mix


@pytest.mark.parametrize(
    ("package", "arguments", "said"),
    [
        ("accelerate", (*TORCHRUN, "accelerate_train.py"), {"rank 0 of 2", "rank 1 of 2"}),
        ("transformers", ("trainer_train.py",), {"cpu: ddp_timeout 1740"}),
        ("lightning", ("lightning_train.py",), {"rank 0 of 2", "rank 1 of 2"}),
    ],
)
def test_a_framework_s_example_runs(
    folder: Path, need: Callable[[str, bool, str], None], package: str, arguments: tuple[str, ...], said: set[str]
) -> None:
    need("frameworks", bool(installed_versions((package,))), f"{package} is not installed: make frameworks")
    ran = run(folder, *arguments)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert all(each in ran.stdout for each in said), ran.stdout[-3000:]  # lines of ranks mix


def test_a_ray_actor_checks_its_node(folder: Path) -> None:
    if not installed_versions(("ray",)):
        pytest.skip("ray is not installed; it is no framework of CI: 70 MB and servers that listen")
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as short:  # of a longer name no socket can be made
        ran = run(folder, "ray_train.py", RAY_TMPDIR=short)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "ready: " in ran.stdout


def test_why_prints_what_ended_a_run(folder: Path) -> None:
    (folder / "log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    ran = run(folder, "why.py", "log")
    assert "out of GPU memory" in ran.stdout, ran.stderr
    assert len(ran.stdout.splitlines()) > 1


def test_mypy_strict_passes_on_every_example_outside_the_package(folder: Path) -> None:
    (folder / "mypy.ini").write_text(MYPY)
    (folder / "wrong.py").write_text("import preflight\n\npreflight.check(gpus=1.5)\npreflight.probe().nothing\n")
    told = run(folder, "-m", "mypy", "--config-file", "mypy.ini", *EXAMPLES, "wrong.py").stdout.splitlines()
    assert len(EXAMPLES) == 7
    assert [path.name for path in FILES if f"../scripts/examples/{path.name}" not in PAGE] == []
    assert sorted(line.split(":")[0] for line in told if ": error: " in line) == ["wrong.py"] * 2, told
