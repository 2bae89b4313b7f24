"""Ranks of the real NCCL and torch that sum for ever on a simulated machine, and `preflight stuck` beside them.

`python -m tests.simcuda.hanging_job FIRST COUNT SIZE OUT`, in a sandbox, starts the ranks of a node. Each request that
comes as OUT/look.N makes it look as a user of this node would; after the last it ends them. Nothing of torch is
replaced here: what the ranks do needs no kernel but NCCL's.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WAIT_S = 100.0


def run_rank(out: Path) -> None:
    """Sum, and read the sum as a loss is read."""
    torch, dist = importlib.import_module("torch"), importlib.import_module("torch.distributed")
    rank, gpu = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", device_id=torch.device("cuda", gpu))
    loss = torch.zeros(1, device="cuda")
    step = 0
    while True:
        (out / f"step.{rank}").write_text(str(step))
        dist.all_reduce(loss)
        loss.item()
        time.sleep(0.05)
        step += 1


def main(first: int, count: int, size: int, out: Path) -> None:
    """Start the ranks of this node, look when asked to, and end them."""
    meeting = {"MASTER_ADDR": os.environ.get("MASTER_ADDR", "127.0.0.1"), "MASTER_PORT": "29555"}
    sizes = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    project = os.environ["PYTHONPATH"].split(":")[0]  # without the folder that would compute torch's kernels
    ranks = {}
    for local in range(count):
        own = {"RANK": str(first + local), "LOCAL_RANK": str(local), "PYTHONPATH": project}
        with (out / f"log.{first + local}").open("wb") as log:
            command = [sys.executable, "-m", "tests.simcuda.hanging_job", str(out)]
            environ = os.environ | meeting | sizes | own
            ranks[first + local] = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
    number, is_last = 0, False
    while not is_last:
        request = _wait_for_request(out / f"look.{number}")
        for each in request["kill"]:
            ranks[each].kill()
            ranks[each].wait()
        command = [sys.executable, "-m", "preflight", "stuck", "--ras", "--out", str(out / "nodes")]
        command += request["options"]
        subprocess.run([*command, "--json", str(out / f"answer.{number}.{first}")], check=False)
        number, is_last = number + 1, request["is_last"]
    for rank in ranks.values():
        rank.kill()
        rank.wait()


def _wait_for_request(path: Path) -> dict[str, Any]:
    end_at = time.monotonic() + WAIT_S
    while not path.exists() and time.monotonic() < end_at:
        time.sleep(0.05)
    request: dict[str, Any] = json.loads(path.read_text())
    return request


if __name__ == "__main__":
    if len(sys.argv) == 2:
        run_rank(Path(sys.argv[1]))
    else:
        main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
