"""The parts of a GPU report run within their limits, and the archive can be read at every moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from preflight.cli.gpu_report import free_gpus
from preflight.errors import LaunchError, UsageError
from preflight.gpu_report.parts import ReportPart, parts
from preflight.gpu_report.report import MOST_FILE_BYTES, PartResult, run_parts
from preflight.model.gpu import GpuProcess
from tests.gpus import gpu
from tests.node_facts import gpu_node, node

pytestmark = pytest.mark.heavy(4)

SHELL = ("/bin/sh", "-c")


def part(name: str, script: str, limit_s: float = 10.0, **more: object) -> ReportPart:
    return replace(ReportPart(name, f"what {name} says", (*SHELL, script), limit_s), **more)  # type: ignore[arg-type]


def ran(tmp_path: Path, *listed: ReportPart, left_s: float = 60.0) -> dict[str, PartResult]:
    results = run_parts(listed, ("GPU-0",), str(tmp_path / "out.tar.gz"), time.monotonic() + left_s, {
        "PATH": os.environ["PATH"], "USER": "mmustermann", "NCCL_DEBUG": "WARN",
    }, lambda _: None)  # fmt: skip
    return {result.name: result for result in results}


def packed(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        return {entry.name: tar.extractfile(entry).read().decode() for entry in tar if entry.isfile()}  # type: ignore[union-attr]


def test_each_part_has_its_outcome_and_its_files_without_names(tmp_path: Path) -> None:
    results = ran(
        tmp_path,
        part(
            "good", "echo fine for mmustermann; echo kept > file.json; echo $CUDA_VISIBLE_DEVICES ${NCCL_DEBUG-unset}"
        ),
        part("bad", "echo wrong >&2; exit 7"),
        part("long", "sleep 60 & sleep 60", 0.2),
        part("absent", "true", program="no-such-program"),
        part("pairs", "true", least_gpus=2),
    )
    outcomes = {name: (result.outcome, result.why) for name, result in results.items()}
    assert outcomes == {
        "good": ("passed", ""),
        "bad": ("failed", "exit code 7"),
        "long": ("not run", "the time for all parts was over"),
        "absent": ("not run", "no-such-program is not installed"),
        "pairs": ("not run", "it needs 2 GPUs"),
    }
    files = packed(tmp_path / "out.tar.gz")
    assert files["preflight-gpu/good/output.txt"] == "fine for (removed)\nGPU-0 unset\n"
    assert files["preflight-gpu/good/file.json"] == "kept\n"
    assert files["preflight-gpu/bad/output.txt"] == "wrong\n"
    summary = json.loads(files["preflight-gpu/summary.json"])
    assert [each["name"] for each in summary["parts"]] == list(results)


@pytest.mark.parametrize(("left_s", "deadline_s"), [(60.0, "45"), (1000.0, "385"), (10.0, "1")])
def test_a_check_is_told_to_end_before_the_time_that_is_really_left(
    tmp_path: Path, left_s: float, deadline_s: str
) -> None:
    check = part("check", 'echo "$0 $1"; exit 3', 400.0, ends_before_s=15.0)
    assert ran(tmp_path, check, left_s=left_s)["check"].outcome == "found"
    assert packed(tmp_path / "out.tar.gz")["preflight-gpu/check/output.txt"] == f"--deadline {deadline_s}\n"


def test_a_part_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    mark = f"{random.getrandbits(32) + 600}"
    results = ran(tmp_path, part("long", f"sleep {mark} & sleep {mark}", 5.5))
    assert results["long"].outcome == "timed out"
    assert subprocess.run(["pgrep", "-f", f"sleep {mark}"], check=False, stdout=subprocess.DEVNULL).returncode == 1


def test_a_long_file_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    ran(tmp_path, part("flood", f"echo first; head -c {3 * MOST_FILE_BYTES} /dev/zero | tr '\\0' x; echo; echo last"))
    text = packed(tmp_path / "out.tar.gz")["preflight-gpu/flood/output.txt"]
    assert text.startswith("first\n") and text.endswith("\nlast\n")
    assert len(text) < MOST_FILE_BYTES + 100


KILLED = """
import sys, time
from preflight.gpu_report.parts import ReportPart
from preflight.gpu_report.report import run_parts
noise = ("/bin/sh", "-c", "head -c 100000 /dev/urandom | od | head -c 100000; sleep 0.05")
parts = [ReportPart(f"p{i}", "", noise, 10.0) for i in range(40)]
run_parts(parts, (), sys.argv[1], time.monotonic() + 60, {"PATH": "/usr/bin:/bin"}, lambda _: None)
"""


@pytest.mark.parametrize("kill", range(10))
def test_killed_at_a_random_instant_it_leaves_an_archive_that_can_be_read(tmp_path: Path, kill: int) -> None:
    archive = tmp_path / "out.tar.gz"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(archive)], env=os.environ | {"TMPDIR": str(tmp_path)})
    until = time.monotonic() + 20
    while not archive.exists() and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(random.Random(kill).random())
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "preflight-gpu/summary.json" in packed(archive)


def test_a_gpu_that_another_process_uses_is_refused() -> None:
    busy = replace(gpu(1), processes=(GpuProcess(4242, 1 << 30, "python3", 1000, True),))
    with pytest.raises(UsageError, match=r"GPU 1 is in use \(pid 4242\)"):
        free_gpus(gpu_node(2, gpus=(gpu(0), busy)), None, None)
    assert [each.nvml_index for each in free_gpus(gpu_node(2, gpus=(gpu(0), busy)), "0", None)] == [0]


def test_a_machine_without_a_gpu_says_so() -> None:
    with pytest.raises(LaunchError, match="no NVIDIA GPU"):
        free_gpus(node(), None, None)


def test_every_part_says_what_it_answers_and_all_names_differ() -> None:
    listed = parts()
    assert len({each.name for each in listed}) == len(listed) >= 20
    assert all(each.answers and each.limit_s <= 400 for each in listed)
