"""Programs that run on real GPUs, started with `on_gpu NAME [COUNT]`.

Each program prints one JSON document, and exits with 1 if the document shows a wrong result, or else with 0.
"""
# The caller kills a program that stalls.

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from preflight.model.job import Dtype, Job, ParamCount
from preflight.system.nvml import open_nvml
from preflight.system.own_command import own_argv
from preflight.system.processes import die_with_parent
from preflight.timeout.memory import gradient_terms, state_terms
from preflight.trial.rank.load_sampler import nvml_sampler

MODULE = "preflight.gpu_report.on_gpu"
ELEMENTS = 1 << 18
WIDTH = 1024  # 1 Mi parameters
RANKS_S, ENDS_S = 50.0, 30.0
HELD_BYTES = 1 << 30
ENDLESS_CYCLES = 1 << 42  # half an hour at 2 GHz
SAMPLE_S, PRODUCTS_S = 0.05, 3.0
# Ranks that NCCL takes for ranks of different nodes, because it refuses two ranks of one node on one GPU (facts 3).
ONE_GPU = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_MNNVL_ENABLE": "0", "NCCL_RAS_ENABLE": "0"}


def main() -> None:
    """Run the program that is named on the command line."""
    name, *arguments = sys.argv[1:]
    document = PROGRAMS[name](*arguments)
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()
    os._exit(0 if document.get("right", True) else 1)  # nothing at the interpreter's end may hang


def torch_facts() -> dict[str, Any]:
    """Return the versions of torch, CUDA and NCCL, the GPUs, and thread counts.

    The result also says whether a fork works after the import of torch.
    """
    # The threads are counted before and after the import, and after CUDA has started.
    threads = [threading.active_count(), _os_threads()]
    since = time.monotonic()
    import torch  # noqa: PLC0415  seconds, and only some programs need it

    import_s, after_import = time.monotonic() - since, _os_threads()
    child = os.fork()
    if child == 0:
        os._exit(0 if float(torch.ones(2, device="cuda").sum()) == 2.0 else 1)
    _, status = os.waitpid(child, 0)
    torch.ones(1, device="cuda")
    cuda: Any = torch.cuda  # its classes carry no types
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return {
        "torch": torch.__version__, "cuda": torch.version.cuda, "nccl": ".".join(map(str, cuda.nccl.version())),
        "import_s": import_s, "threads": [*threads, after_import, _os_threads()],
        "fork_after_import_is_sound": status == 0,
        "gpus": [[gpu.name, f"{gpu.major}.{gpu.minor}", gpu.total_memory] for gpu in gpus],
    }  # fmt: skip


def context() -> dict[str, Any]:
    """Use a GPU step by step. Return the duration, the CUDA contexts and the used memory of each step."""
    import torch  # noqa: PLC0415  seconds, and only some programs need it

    cuda: Any = torch.cuda  # its classes carry no types
    steps: list[dict[str, Any]] = []

    def step(what: str, do: Callable[[], object]) -> None:
        since = time.monotonic()
        do()
        for gpu in range(torch.cuda.device_count() if steps else 1):
            torch.cuda.synchronize(gpu) if _has_context(gpu) else None
        took_ms = (time.monotonic() - since) * 1e3
        contexts = [_has_context(gpu) for gpu in range(torch.cuda.device_count())]
        used = [_used_bytes(torch, gpu) for gpu, has in enumerate(contexts) if has]
        steps.append({"step": what, "ms": took_ms, "contexts": contexts, "used_bytes": used})

    first: list[Any] = []
    step("a tensor on GPU 0", lambda: first.append(torch.ones(1 << 20, device="cuda:0")))
    cycles = 20_000_000
    step(f"_sleep({cycles}) on an idle GPU", lambda: cuda._sleep(cycles))
    step(f"_sleep({cycles}) again", lambda: cuda._sleep(cycles))
    if torch.cuda.device_count() > 1:
        step("a tensor on GPU 1", lambda: first.append(torch.zeros(1 << 20, device="cuda:1")))
        step("a copy from GPU 0 to GPU 1", lambda: first[1].copy_(first[0]))
    return {"steps": steps}


def ranks(count: str) -> dict[str, Any]:
    """Run `count` ranks on one GPU. Return the result of an all_reduce and the transports that NCCL used."""
    with tempfile.TemporaryDirectory() as folder:
        started = [
            _rank(i, int(count), folder, {"NCCL_HOSTID": f"preflight-{i}", **ONE_GPU}) for i in range(int(count))
        ]
        with _all_end(started):
            ended = [process.communicate(timeout=RANKS_S) for process in started]
        logs = "".join(Path(path).read_text(errors="replace") for path in glob.glob(f"{folder}/*.log"))
    answers: list[Any] = [
        json.loads(out) if process.returncode == 0 else err[-1000:]
        for process, (out, err) in zip(started, ended, strict=True)
    ]
    right = all(isinstance(each, dict) and each["wrong"] == 0 for each in answers)
    return {
        "right": right,
        "ranks": answers,
        "ways": sorted(set(re.findall(r"Channel \d+(?:/\d+)? : .* via (\S+)", logs))),
    }


def rank(number: str, count: str, folder: str, calls: str = "1") -> dict[str, Any]:
    """Run `calls` all_reduces as rank `number` of `count` ranks, and return the number of wrong elements.

    The ranks find each other through files in `folder`.
    """
    # If `calls` is 1, all ranks share GPU 0. Otherwise, each rank has its own GPU if there are enough GPUs.
    import torch  # noqa: PLC0415  seconds, and only some programs need it
    import torch.distributed as dist  # noqa: PLC0415  seconds
    from torch._C._distributed_c10d import FileStore  # noqa: PLC0415  seconds

    place = int(number) % torch.cuda.device_count() if int(calls) > 1 else 0
    torch.cuda.set_device(place)
    store = FileStore(f"{folder}/store", int(count))
    dist.init_process_group("nccl", store=store, rank=int(number), world_size=int(count))
    wrong = 0
    for _ in range(int(calls)):
        values = torch.full((ELEMENTS,), float(int(number) + 1), device="cuda")
        dist.all_reduce(values)
        wrong += int(torch.count_nonzero(values != int(count) * (int(count) + 1) / 2).item())
    store.set(f"through/{number}", "yes")  # a rank that leaves early ends what others still wait for
    store.wait([f"through/{each}" for each in range(int(count))])
    return {"rank": int(number), "wrong": wrong}


def stopped() -> dict[str, Any]:
    """Stop one of two ranks with SIGSTOP during their all_reduces, and return the report of `preflight stuck`."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {"RANK": "", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29499"}
        started = [
            _rank(i, 2, folder, {**variables, "RANK": str(i), "LOCAL_RANK": str(i)}, calls=1 << 20) for i in range(2)
        ]
        with _all_end(started):
            time.sleep(15.0)
            started[1].send_signal(signal.SIGSTOP)
            time.sleep(5.0)
            command = own_argv("stuck", str(os.getpid()), "--json", "-")
            answer = subprocess.run(command, capture_output=True, text=True, timeout=45, check=False)
    return {"stuck_code": answer.returncode, "stuck": _json_or_text(answer.stdout), "stderr": answer.stderr[-2000:]}


def products() -> dict[str, Any]:
    """Return time series of the speed of matrix products, the GPU clocks and the throttle reasons.

    The series of each data type takes a few seconds and has a sample every 50 ms.
    """
    import torch  # noqa: PLC0415  seconds, and only some programs need it

    sample = nvml_sampler(f"GPU-{str(torch.cuda.get_device_properties(0).uuid).removeprefix('GPU-')}")
    measured = {}
    for dtype, rows in (("float32", 4096), ("bfloat16", 8192), ("float16", 8192)):
        one = torch.randint(0, 31, (rows, rows), device="cuda").to(getattr(torch, dtype))
        torch.cuda.synchronize()
        since, series = time.monotonic(), []
        while time.monotonic() - since < PRODUCTS_S:
            began = time.monotonic()
            done = 0
            while time.monotonic() - began < SAMPLE_S:
                torch.mm(one, one)
                torch.cuda.synchronize()
                done += 1
            tflop_s = 2 * rows**3 * done / (time.monotonic() - began) / 1e12
            series.append({"s": round(began - since, 3), "tflop_s": round(tflop_s, 2), "load": str(sample())})
        measured[dtype] = series
    return {"products": measured}


def killed() -> dict[str, Any]:
    """Kill processes in a CUDA kernel. Return the seconds until the process and its memory were gone.

    The result has one entry for each way to kill a process.
    """
    ended = {}
    for what, numbers in (("SIGKILL", [signal.SIGKILL]), ("SIGSTOP, SIGKILL", [signal.SIGSTOP, signal.SIGKILL])):
        free_before = _free_bytes()
        process = _start(own_argv("spin", module=MODULE), {})
        with _all_end([process]):
            assert process.stdout is not None
            process.stdout.readline()  # its kernel runs
            time.sleep(1.0)
            free_meanwhile = _free_bytes()
            since = time.monotonic()
            for number in numbers:
                process.send_signal(number)
            process.wait(ENDS_S)
            ended_s = time.monotonic() - since
            while _free_bytes() < free_before - (HELD_BYTES >> 2) and time.monotonic() - since < ENDS_S:
                time.sleep(0.01)
        ended[what] = {
            "process_gone_s": ended_s, "memory_back_s": time.monotonic() - since,
            "held_bytes": free_before - free_meanwhile, "missing_bytes": free_before - _free_bytes(),
        }  # fmt: skip
    return {"killed": ended}


def spin() -> dict[str, Any]:
    """Hold GPU memory and run a CUDA kernel that does not end."""
    import torch  # noqa: PLC0415  seconds, and only some programs need it

    held = torch.zeros(HELD_BYTES, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    cuda: Any = torch.cuda  # its classes carry no types
    cuda._sleep(ENDLESS_CYCLES)
    sys.stdout.write("running\n")
    sys.stdout.flush()
    torch.cuda.synchronize()
    return {"held_bytes": held.numel()}


def fault() -> dict[str, Any]:
    """Fail an assertion in a CUDA kernel of a child process.

    Return the child's stderr, and what `preflight explain` says about it.
    """
    script = "import torch; torch.zeros(4, device='cuda')[torch.tensor([9], device='cuda')].sum().item()"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False)
    said = subprocess.run(own_argv("explain", "-", "--json", "-"), input=ended.stderr, capture_output=True, text=True,
                          timeout=30, check=False)  # fmt: skip
    return {"code": ended.returncode, "stderr": ended.stderr[-4000:], "explain": _json_or_text(said.stdout)}


def memory() -> dict[str, Any]:
    """Train one layer with AdamW in fp32, and measure the memory.

    Return the memory that torch allocated, and the lower bound that preflight computes for this memory.
    """
    import torch  # noqa: PLC0415  seconds, and only some programs need it

    weight = torch.nn.Parameter(torch.full((WIDTH, WIDTH), 0.5, device="cuda"))
    optimizer = torch.optim.AdamW([weight], foreach=False, fused=False)
    for _ in range(2):
        optimizer.zero_grad()
        loss: Any = (weight * weight).sum()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    most_bytes = int(torch.cuda.max_memory_allocated())
    count = ParamCount(weight.numel(), weight.numel())
    terms = [*state_terms(job := Job(count, Dtype.FP32), count), *gradient_terms(job, count)]
    bound_bytes = sum(term.needed_bytes for term in terms)
    return {"right": bound_bytes <= most_bytes, "bound_bytes": bound_bytes, "most_allocated_bytes": most_bytes}


PROGRAMS: dict[str, Callable[..., dict[str, Any]]] = {
    "torch": torch_facts, "context": context, "ranks": ranks, "rank": rank, "stopped": stopped, "products": products,
    "killed": killed, "spin": spin, "fault": fault, "memory": memory,
}  # fmt: skip


def _rank(number: int, count: int, folder: str, env: dict[str, str], calls: int = 1) -> subprocess.Popen[str]:
    own = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{folder}/{number}.log", **env}
    return _start(own_argv("rank", str(number), str(count), folder, str(calls), module=MODULE), own)


def _start(command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    """Start a program that is killed if this process dies."""
    return subprocess.Popen(
        command, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509  there is one thread
    )  # fmt: skip


@contextlib.contextmanager
def _all_end(started: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in started:
            process.kill()


def _os_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _has_context(gpu: int) -> bool:
    flags, active, device = ctypes.c_uint(), ctypes.c_int(), ctypes.c_int()
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0)
    driver.cuDeviceGet(ctypes.byref(device), gpu)
    driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    return bool(active.value)


def _used_bytes(torch: Any, gpu: int) -> int:
    free, total = torch.cuda.mem_get_info(gpu)
    return int(total - free)


def _free_bytes() -> int:
    """Return the number of free bytes on the first visible GPU.

    The value comes from NVML, because this process has no CUDA context.
    """
    nvml = open_nvml()
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
    by_uuid = first.startswith("GPU-")
    handle = nvml.nvmlDeviceGetHandleByUUID(first) if by_uuid else nvml.nvmlDeviceGetHandleByIndex(int(first or 0))
    return int(nvml.nvmlDeviceGetMemoryInfo(handle).free)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text[-4000:]


if __name__ == "__main__":
    main()
