"""Two real ranks on gloo: a save that outlasts a short timeout ends the job, with preflight's line it survives.

The same renderer gives both lines. The short one shows that the framework takes the timeout from it, the other is the
answer for a pause as long as the save.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from preflight.model.job import Job
from preflight.timeout.frameworks import framework_lines
from preflight.timeout.safe_timeout import safe_timeout
from tests.timeout.test_safe_timeout import NOTHING

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400), pytest.mark.heavy(4)]

JOBS = Path(__file__).parent / "jobs"
SHORT_S, SAVE_S = 10, 16
TIMED_OUT = ("Timed out waiting", "timed out", "DistBackendError", "Connection closed by peer", "Timeout")


@dataclass(frozen=True, slots=True)
class Ran:
    """How a job ended, with all that its ranks said."""

    code: int
    text: str

    @property
    def survivors(self) -> list[str]:
        """The ranks that came to the end."""
        return sorted(line for line in self.text.splitlines() if line.startswith("SURVIVED"))


def line_of(framework: str, timeout_s: int) -> str:
    lines = {each.name: each.line for each in framework_lines(timeout_s, timeout_s, NOTHING, {}, 3)}
    return lines[framework]


def run_job(framework: str, line: str, folder: Path) -> Ran:
    """Run the framework's job on two ranks under torchrun, started by preflight's own line for it."""
    start = line_of("torchrun", 600).replace(
        "...", f"--rdzv-endpoint 127.0.0.1:0 --nproc-per-node 2 {JOBS}/{framework}_job.py"
    )
    argv = [sys.executable, "-m", "torch.distributed.run", *start.split()[1:]]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "GLOO_", "TORCH_"))}
    own = {
        "LINE": line, "SAVE_S": str(SAVE_S), "OUT": str(folder / "out"), "TMPDIR": str(folder), "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    with subprocess.Popen(
        argv, cwd=folder, env=kept | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            text, _ = process.communicate(timeout=180)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return Ran(process.returncode, text)


@pytest.fixture(params=["torch", "transformers", "accelerate", "lightning"])
def framework(request: pytest.FixtureRequest, need: Callable[[str, bool, str], None]) -> str:
    name = str(request.param)
    found = subprocess.run(
        [sys.executable, "-c", f"import importlib.util as u, sys; sys.exit(not u.find_spec('{name}'))"], check=False
    )
    need("frameworks", found.returncode == 0, f"{name} is not installed: pip install -e '.[frameworks]'")
    return name


def test_a_save_that_outlasts_the_timeout_ends_the_job(framework: str, tmp_path: Path) -> None:
    ran = run_job(framework, line_of(framework, SHORT_S), tmp_path)
    assert "SAVING" in ran.text, ran.text[-3000:]
    assert ran.code != 0, ran.text[-3000:]
    assert len(ran.survivors) < 2, "a rank that waited longer than the timeout can't have survived"
    assert any(sign in ran.text for sign in TIMED_OUT), ran.text[-3000:]


def test_with_preflight_s_line_it_survives_the_same_save(framework: str, tmp_path: Path) -> None:
    answer = safe_timeout(Job(eval_s=SAVE_S), NOTHING)
    ran = run_job(framework, line_of(framework, answer.pg_timeout_s), tmp_path)
    assert "SAVING" in ran.text, ran.text[-3000:]
    assert (ran.code, ran.survivors) == (0, ["SURVIVED 0", "SURVIVED 1"]), ran.text[-3000:]
