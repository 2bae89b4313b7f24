"""Jobs for one GPU: `ranks N FOLDER` has N ranks share it over NCCL, `memory` trains a layer and counts its memory.

Each prints one JSON and exits 1 where what it shows is wrong.
"""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ELEMENTS = 1 << 18
WIDTH = 1024  # 1 Mi parameters
LIMIT_S = 140.0


def main() -> int:
    """Run the job that is named."""
    match sys.argv[1:]:
        case ["memory"]:
            return memory()
        case ["ranks", count, folder]:
            return ranks(int(count), Path(folder))
        case ["rank", rank, count, folder]:
            return rank_of(int(rank), int(count), Path(folder))
    sys.exit(__doc__)


def ranks(count: int, folder: Path) -> int:
    """Start ranks that NCCL takes for those of several nodes: it refuses two ranks of one node on one GPU."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "store").unlink(missing_ok=True)
    started = []
    for rank in range(count):
        own = {"NCCL_HOSTID": f"preflight-{rank}", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(folder / f"{rank}.log")}
        command = [sys.executable, "-m", "scripts.gpu_jobs", "rank", str(rank), str(count), str(folder)]
        started.append(
            subprocess.Popen(command, env=os.environ | own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    try:
        ended = [process.communicate(timeout=LIMIT_S) for process in started]
    finally:
        for process in started:
            process.kill()
    logs = "".join(Path(path).read_text(errors="replace") for path in glob.glob(str(folder / "*.log")))
    ways = sorted(set(re.findall(r"Channel \d+(?:/\d+)? : .* via (\S+)", logs)))
    told: list[Any] = [json.loads(out) if process.returncode == 0 else err[-1000:] for process, (out, err) in
                       zip(started, ended, strict=True)]  # fmt: skip
    right = all(isinstance(each, dict) and each["wrong"] == 0 for each in told)
    sys.stdout.write(json.dumps({"right": right, "ranks": told, "ways": ways}) + "\n")
    return 0 if right and ways else 1


def rank_of(rank: int, count: int, folder: Path) -> int:
    """Take part in one all_reduce on the first GPU."""
    import torch  # noqa: PLC0415  the other jobs' parents need none
    import torch.distributed as dist  # noqa: PLC0415

    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    store = dist.FileStore(str(folder / "store"), count)
    dist.init_process_group("nccl", store=store, rank=rank, world_size=count)
    values = torch.full((ELEMENTS,), float(rank + 1), device=device)
    dist.all_reduce(values)
    wrong = int(torch.count_nonzero(values != count * (count + 1) / 2).item())
    sys.stdout.write(json.dumps({"rank": rank, "wrong": wrong}) + "\n")
    sys.stdout.flush()
    store.set(f"through/{rank}", "yes")  # whoever leaves earlier takes along what others still wait for
    store.wait([f"through/{each}" for each in range(count)])
    os._exit(0)


def memory() -> int:
    """Train one layer with AdamW in fp32 and compare what torch allocated with preflight's lower bound."""
    import torch  # noqa: PLC0415

    from preflight.model.job import Dtype, Job, ParamCount  # noqa: PLC0415
    from preflight.timeout.memory import gradient_terms, state_terms  # noqa: PLC0415

    device = torch.device("cuda", 0)
    weight = torch.nn.Parameter(torch.full((WIDTH, WIDTH), 0.5, device=device))
    optimizer = torch.optim.AdamW([weight], foreach=False, fused=False)
    for _ in range(2):
        optimizer.zero_grad()
        (weight * weight).sum().backward()
        optimizer.step()
    torch.cuda.synchronize(device)
    most_bytes = int(torch.cuda.max_memory_allocated(device))
    count = ParamCount(weight.numel(), weight.numel())
    terms = [*state_terms(job := Job(count, Dtype.FP32), count), *gradient_terms(job, count)]
    bound_bytes = sum(term.needed_bytes for term in terms)
    holds = bound_bytes <= most_bytes
    told = {"holds": holds, "bound_bytes": bound_bytes, "most_allocated_bytes": most_bytes}
    sys.stdout.write(json.dumps(told) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
