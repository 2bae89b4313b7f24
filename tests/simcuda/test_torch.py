"""torch with CUDA on simulated GPUs: init_process_group("nccl") and collectives that are right."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.simcuda.machine import capture, install, named
from tests.simcuda.places import PROJECT, python
from tests.simcuda.run import sandboxed

pytestmark = [pytest.mark.simcuda, pytest.mark.usefixtures("simcuda_torch"), pytest.mark.timeout(180)]


def run(code: str, folder: Path, machine: str = "pcie4-2numa", **env: str) -> str:
    """Run Python code with torch on a machine of its own and return what it said."""
    described = named(machine)
    environ = {**os.environ, **install(described, folder, torch=True), "PYTHONPATH": str(PROJECT), **env}
    command = sandboxed([str(python()), "-c", code], described, folder)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def test_two_ranks_of_a_users_job_are_right(tmp_path: Path) -> None:
    described = named("pcie4-2numa")
    environ = {
        **os.environ,
        **install(described, tmp_path, torch=True),
        "PYTHONPATH": str(PROJECT),
        "OMP_NUM_THREADS": "1",
    }
    environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555", "WORLD_SIZE": "2"}
    start = 'for r in 0 1; do RANK=$r LOCAL_RANK=$r "$0" -m tests.simcuda.demo_torch & done; wait'
    command = sandboxed(["sh", "-c", start, str(python())], described, tmp_path)
    said = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=150, check=False)
    assert said.stdout.count("right True") == 2, said.stdout + said.stderr
    assert said.stdout.count("gathered [0.0, 1.0]") == 2 and said.stdout.count("done") == 2


def test_torch_sees_the_gpus_that_cuda_visible_devices_names(tmp_path: Path) -> None:
    gpus = capture("a100x4").gpus
    properties = "[torch.cuda.get_device_properties(i).pci_bus_id for i in range(torch.cuda.device_count())]"
    code = f"import torch; print({properties})"
    said = run(code, tmp_path, "a100x4", CUDA_VISIBLE_DEVICES=f"{gpus[2]['uuid']},{gpus[0]['uuid']}")
    assert f"[{int(gpus[2]['bdf'][5:7], 16)}, {int(gpus[0]['bdf'][5:7], 16)}]" in said


def test_cuda_after_a_fork_is_refused_where_the_parent_has_initialised_it(tmp_path: Path) -> None:
    code = """if True:
        import ctypes, os
        cuda = ctypes.CDLL('libcudart.so.12'); count = ctypes.c_int()
        cuda.cudaGetErrorString.restype = ctypes.c_char_p
        print('parent', cuda.cudaGetDeviceCount(ctypes.byref(count)), count.value, flush=True)
        if os.fork() == 0:
            code = cuda.cudaSetDevice(0)
            print('child', code, cuda.cudaGetErrorString(code).decode(), flush=True)
            os._exit(0)
        os.wait()"""
    said = run(code, tmp_path)
    assert "parent 0 4" in said and "child 3 initialization error" in said


def test_memory_is_counted_and_runs_out(tmp_path: Path) -> None:
    code = """if True:
        import tests.simcuda.simtorch, torch
        torch.zeros(1 << 20, device='cuda')
        free, total = torch.cuda.mem_get_info()
        print('total', total >> 20, free < total)
        try:
            torch.empty(600 << 20, dtype=torch.uint8, device='cuda')
        except torch.cuda.OutOfMemoryError as error:
            print('refused', str(error).split('.')[0])"""
    said = run(code, tmp_path)
    assert "total 512 True" in said and "refused CUDA out of memory" in said


def test_memory_of_a_test_is_given_back_while_its_context_is_kept(tmp_path: Path) -> None:
    code = """if True:
        import tests.simcuda.simtorch, torch
        from preflight.trial.rank.gpu_test_cuda import CudaDevices
        devices = CudaDevices()
        devices.open(0, f"GPU-{torch.cuda.get_device_properties(0).uuid}", "")
        def free_mib():
            return torch.cuda.mem_get_info()[0] >> 20
        devices.settle([0])
        before = free_mib()
        buffer = devices.allocate(0, 16 << 20, wide=False)
        with_it = free_mib()
        del buffer
        unsettled = free_mib()
        devices.settle([0])
        print('taken', before - with_it, before - unsettled, before - free_mib())"""
    assert "taken 64 64 0" in run(code, tmp_path)


def test_work_on_a_stream_takes_time_and_ends_in_order(tmp_path: Path) -> None:
    code = """if True:
        import tests.simcuda.simtorch, time, torch
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record(); torch.cuda._sleep(600_000_000); end.record()
        print('ready at once', end.query())
        since = time.monotonic(); torch.cuda.synchronize()
        print('then', end.query(), 250 < begin.elapsed_time(end) < 2000)"""
    said = run(code, tmp_path)
    assert "ready at once False" in said and "then True True" in said, said


def test_what_preflight_does_with_tensors_is_right(tmp_path: Path) -> None:
    code = """if True:
        import tests.simcuda.simtorch, torch
        d = torch.device('cuda', 1)
        a = torch.arange(64, dtype=torch.int64, device=d).reshape(8, 8).to(torch.bfloat16)
        out = torch.empty_like(a); torch.matmul(a, a, out=out)
        print('product', torch.equal(out.cpu(), a.cpu() @ a.cpu()))
        b = torch.empty(1000, dtype=torch.int32, device=d); b.fill_(-7)
        c = torch.arange(1000, dtype=torch.int32).pin_memory(); b.copy_(c, non_blocking=True)
        there = torch.empty(1000, dtype=torch.int32, device='cuda:0'); there.copy_(b, non_blocking=True)
        torch.cuda.synchronize(d); torch.cuda.synchronize(0)
        expected = torch.arange(1000, dtype=torch.int32, device='cuda:0')
        print('copied', int(torch.count_nonzero(there != expected).item()))
        print('joined', torch.cat([there[:2], there[-2:]]).tolist(), there.view(torch.uint8)[:4].tolist())"""
    said = run(code, tmp_path)
    assert "product True" in said and "copied 0" in said and "joined [0, 1, 998, 999] [0, 0, 0, 0]" in said, said


def test_nccl_starts_in_the_stage_init_on_a_torch_that_takes_no_device_id_too(tmp_path: Path) -> None:
    described = named("pcie2-pix")
    code = """if True:
        import glob, os, sys, types
        import tests.simcuda.simtorch, torch, torch.distributed as dist
        from preflight.model.run_spec import StageLimits
        from preflight.trial.rank import trial
        from preflight.trial.rank.measure import Ranks, prove_first
        start = dist.init_process_group
        dist.init_process_group = lambda backend, store, rank, world_size, timeout: start(
            backend, store=store, rank=rank, world_size=world_size, timeout=timeout)  # as before torch 2.3
        rank = int(sys.argv[1])
        torch.cuda.set_device(rank)
        nccl, limits = types.SimpleNamespace(name="nccl"), StageLimits(60, 60, 60, 60, stretches=False)
        asked = types.SimpleNamespace(backend=nccl, limits=limits)
        ranks = Ranks(rank, 2, torch.device("cuda", rank))
        trial._make_group(asked, dist.FileStore(sys.argv[2], 2), ranks)
        log = open(glob.glob(f"{sys.argv[2]}.{os.getpid()}.log")[0]).read()
        print(f"rank {rank} complete {log.count('Init COMPLETE')} wrong {prove_first(ranks)}", flush=True)
        dist.barrier()
        os._exit(0)"""
    store = str(tmp_path / "store")
    own = {"PYTHONPATH": str(PROJECT), "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{store}.%p.log"}
    start = 'for r in 0 1; do "$0" -c "$1" $r "$2" & done; wait'
    command = sandboxed(["sh", "-c", start, str(python()), code, store], described, tmp_path)
    environ = {**os.environ, **install(described, tmp_path, torch=True), **own}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=150, check=False)
    said = done.stdout + done.stderr
    assert "rank 0 complete 1 wrong 0" in said and "rank 1 complete 1 wrong 0" in said, said
