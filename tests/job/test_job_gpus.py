"""`preflight run` tries just the GPUs that the job's launcher takes."""

from __future__ import annotations

import re

import pytest

from preflight.job.job_gpus import engine_of_job, gpus_of_job
from preflight.model.engine_options import Engine
from preflight.model.launchers import LAUNCHERS
from preflight.model.saved_report import load_report
from tests.command import Command
from tests.conftest import PROJECT

MACHINE = str(PROJECT / "tests" / "machines" / "l20x10_ens34.json")


@pytest.mark.parametrize(
    ("line", "visible", "gpus"),
    [
        ("torchrun --nproc-per-node 4 train.py", None, "0,1,2,3"),
        ("torchrun --nnodes 2 --nproc_per_node=2 train.py --nproc-per-node 8", None, "0,1"),
        ("torchrun --nproc-per-node 2 -m train", "6,7,8,9", "6,7"),
        ("torchrun --nproc-per-node 4 train.py", "6,7,8,9", ""),
        ("torchrun --nproc-per-node 2 train.py", "GPU-a,GPU-b,GPU-c", "GPU-a,GPU-b"),
        ("torchrun --nproc-per-node 2 train.py", "", ""),
        ("torchrun --nproc-per-node 8 train.py", None, ""),
        ("torchrun --nproc-per-node 16 train.py", None, ""),
        ("torchrun --nproc-per-node gpu train.py", None, ""),
        ("torchrun train.py --nproc-per-node 4", None, ""),
        ("numactl -N 0 python3 -m torch.distributed.run --nproc-per-node 1 train.py", None, "0"),
        ("srun /opt/venv/bin/torchrun --nproc-per-node 2 train.py", None, "0,1"),
        ("accelerate launch --num-processes 4 train.py", None, "0,1,2,3"),
        ("accelerate launch --num_processes 8 --num_machines 2 train.py", None, "0,1,2,3"),
        ("accelerate launch --gpu_ids 2,5 train.py", "0,1", "2,5"),
        ("accelerate launch --gpu_ids all train.py", None, ""),
        ("accelerate launch train.py", None, ""),
        ("deepspeed --num_gpus 2 train.py", "6,7", "0,1"),
        ("deepspeed --include localhost:4,5 train.py", None, "4,5"),
        ("deepspeed --include node1:4,5@node2:0 train.py", None, ""),
        ("deepspeed train.py --num_gpus 2", None, ""),
        ("python train.py --nproc-per-node 2", None, ""),
        ("vllm serve M -tp 2 -pp 2", None, "0,1,2,3"),
        ("/opt/venv/bin/vllm serve M -tp=2", "4,5,6,7", "4,5"),
        ("vllm serve M -tp 2 -dp 4 -dpl 2", None, "0,1,2,3"),
        ("vllm serve M --tensor-parallel-size 8 --nnodes 2 --node-rank 1 --master-addr n1", None, "0,1,2,3"),
        ("vllm serve M -pp 2 --tool-parser-plugin own.py -tp 2", None, "0,1,2,3"),
        ("vllm serve M", None, ""),
        ("vllm bench throughput -tp 2", None, ""),
        ("python train.py --engine vllm --tp 2", None, ""),
        ("sglang serve --model-path M --tp-size 2 --pp-size 2", None, "0,1,2,3"),
        ("python -m sglang.launch_server --model-path M --tp 4 --nnodes 2 --dist-init-addr n1:5000", None, "0,1"),
        ("python -m sglang.launch_server --model-path M --tp 2 --dp 2", None, "0,1,2,3"),
        ("python -m sglang.launch_server --model-path M --tp 4 --dp 4 --enable-dp-attention", None, "0,1,2,3"),
        ("python -m sglang.launch_server --model-path M --tp 2 --base-gpu-id 4", None, "4,5"),
        ("python -m sglang.launch_server --model-path M --tp 2 --base-gpu-id 2 --gpu-id-step 2", None, "2,4"),
        ("python -m sglang.launch_server --model-path M --tp 4 --base-gpu-id 6", None, ""),
        ("", None, ""),
    ],
)
def test_a_launchers_options_say_which_gpus_its_ranks_see(line: str, visible: str | None, gpus: str) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpus_of_job(line.split(), environ, present=8) == gpus


def test_each_engine_says_in_whose_sources_its_options_were_read() -> None:
    engines = {each.name: each.versions for each in LAUNCHERS if each.name in ("vllm", "sglang")}
    assert len(engines) == 2
    assert all(re.match(r"(?:\d+\.\d+\.\d+(?:, |: )){3}\S+\.py", versions) for versions in engines.values())


def test_torchruns_variable_counts_where_its_option_is_absent() -> None:
    environ = {"PET_NPROC_PER_NODE": "3"}
    assert gpus_of_job(["torchrun", "train.py"], environ, 8) == "0,1,2"
    assert gpus_of_job(["torchrun", "--nproc-per-node=2", "train.py"], environ, 8) == "0,1"


def test_the_check_takes_these_says_so_and_leaves_the_jobs_variable_alone(command: Command) -> None:
    environ = {"PREFLIGHT_CHECK_MACHINE": MACHINE, "CUDA_VISIBLE_DEVICES": "6,7,8,9", "PREFLIGHT_VERBOSE": "0"}
    job = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES", "torchrun", "--nproc-per-node", "2", "train.py")
    ran = command.run("run", "--backend", "simnccl@simnccl", "--", *job, env=environ)
    assert (ran.code, ran.stdout) == (0, "6,7,8,9\n"), ran.stderr
    assert "the check takes GPUs 6,7, as the job's launcher does; --gpus takes others" in ran.stderr
    report = load_report((command.cwd / "preflight-report.json").read_text(), "the report")
    assert report.world_size == 2


@pytest.mark.integration
def test_a_server_is_started_with_the_settings_and_the_page_names_the_engines_own_option(command: Command) -> None:
    server = command.cwd / "vllm"
    server.write_text("#!/bin/sh\necho served $NCCL_P2P_DISABLE\n")
    server.chmod(0o755)
    environ = {
        "PREFLIGHT_CHECK_MACHINE": MACHINE, "CUDA_VISIBLE_DEVICES": "6,7,8,9", "PREFLIGHT_VERBOSE": "",
        "SIMNCCL": "hang:via=P2P",
    }  # fmt: skip
    line = ("run", "--backend", "simnccl@simnccl", "--", "./vllm", "serve", "M", "-tp", "2")
    ran = command.run(*line, env=environ, timeout_s=220)
    assert (ran.code, ran.stdout) == (0, "served 1\n"), ran.stderr
    assert "the check takes GPUs 6,7" in ran.stderr
    assert "--disable-custom-all-reduce" in ran.stderr and "not tried" in ran.stderr


def test_the_engine_of_a_command_is_the_one_that_it_starts() -> None:
    started = {line: engine_of_job(line.split()) for line in (
        "vllm serve M", "python -m sglang.launch_server --model-path M", "torchrun vllm.py", "vllm bench", "",
    )}  # fmt: skip
    assert list(started.values()) == [Engine.VLLM, Engine.SGLANG, None, None, None]
