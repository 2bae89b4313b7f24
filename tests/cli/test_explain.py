"""The real `preflight explain`: exit codes, documents, standard input, and no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import Command
from tests.explain.logs import SEEDS

OOM = SEEDS / "1_qwen_vl_oom_behind_timeout.log"


def test_a_named_cause_is_exit_code_1_and_the_document_has_the_promised_keys(command: Command) -> None:
    ran = command.run("explain", str(OOM), "--json", "-")
    assert ran.code == 1
    document = ran.document
    assert document["verdict"] == "cause_named"
    first = document["causes"][0]
    assert first["cause"] == "cuda_oom_masked"
    assert {"confidence", "evidence", "remedy", "confirm_with"} <= set(first)
    assert first["evidence"][0]["line"] == 29
    assert [item["cause"] for item in document["consequences"]] != []


def test_a_healthy_log_is_exit_code_0(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "ok.log"
    path.write_text("# Avg bus bandwidth    : 412.7\n")
    ran = command.run("explain", str(path))
    assert ran.code == 0
    assert ran.stdout.startswith("NOTHING FAILED")


def test_a_log_that_tells_nothing_is_exit_code_3_and_says_what_to_capture(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "empty.log"
    path.write_text("")
    ran = command.run("explain", str(path))
    assert ran.code == 3
    assert "NCCL_DEBUG=INFO" in ran.stdout


@pytest.mark.parametrize("arguments", [(), ("missing.log",), (".",)])
def test_what_can_not_be_read_is_exit_code_2_in_one_line(command: Command, arguments: tuple[str, ...]) -> None:
    ran = command.run("explain", *arguments)
    assert ran.code == 2
    assert ran.stdout == ""
    assert len(ran.stderr.splitlines()) == 1


def test_standard_input_is_read(command: Command) -> None:
    with OOM.open("rb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "preflight", "explain", "-", "--json", "-"],
            stdin=file, capture_output=True, env=command.environ(), cwd=command.cwd, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert json.loads(done.stdout)["causes"][0]["cause"] == "cuda_oom_masked"


def test_the_env_file_is_written_and_marked(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(
        "pod-0:71:90 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-79f392 to 9637892 bytes\n"
    )
    ran = command.run("explain", str(path), "--env-out", "x.env")
    text = (ran.cwd / "x.env").read_text()
    assert "export NCCL_SHM_DISABLE='1'" in text
    assert text.startswith("# untried: `preflight check` tries them\n")


def test_a_hostile_dump_is_refused_without_running_it(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(b"\x80\x02cposix\nsystem\nX\x10\x00\x00\x00touch pwned-by-it\x85R.")
    ran = command.run("explain", str(path))
    assert ran.code == 2
    assert "refused" in ran.stderr
    assert not (ran.cwd / "pwned-by-it").exists()


def test_several_files_of_one_run_are_one_story(command: Command, tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_text(
        "[E ProcessGroupNCCL.cpp:475] [Rank 0] Watchdog caught collective operation timeout\n"
    )
    (tmp_path / "rank_3.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n")
    ran = command.run("explain", str(tmp_path / "rank_0.log"), str(tmp_path / "rank_3.log"), "--json", "-")
    first = ran.document["causes"][0]
    assert (first["cause"], first["evidence"][0]["rank"]) == ("cuda_oom_masked", "3")


def test_help_promises_what_the_exit_codes_are(command: Command) -> None:
    ran = command.run("explain", "--help")
    assert ran.code == 0
    assert "1 a cause was found" in " ".join(ran.stdout.split())
