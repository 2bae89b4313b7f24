"""A job of two ranks on gloo that is silent for a while, and healthy: `python healthy.py WAY FOLDER` starts both.

Most of the time rank 0 works alone, in one of the ways of real jobs, and rank 1 waits for it in a barrier.
"""

from __future__ import annotations

import fcntl
import gc
import gzip
import hashlib
import http.client
import importlib
import json
import multiprocessing
import os
import pickle
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SILENT_S = 20.0
WAY, FOLDER = sys.argv[1], Path(sys.argv[2])
CHUNK = 64 << 10
BURN = f"""
import hashlib, time
until, digest = time.monotonic() + {SILENT_S}, b""
while time.monotonic() < until:
    digest = hashlib.sha256(digest).digest()
    text = digest.hex()
    count = len(set(text))
"""


def is_time(since: float, for_s: float = SILENT_S) -> bool:
    """Return whether it has taken long enough."""
    return time.monotonic() - since >= for_s


def compute(for_s: float = SILENT_S) -> int:
    """Compute in several lines, as a model's layers do."""
    start, digest, words = time.monotonic(), b"", 0
    while not is_time(start, for_s):
        for _ in range(200):
            digest = hashlib.sha256(digest).digest()
            text = digest.hex()
            words += len(set(text))
    return words


def evaluate() -> None:
    """Evaluate on this rank alone."""
    compute()


def save_checkpoint() -> None:
    """Write slowly, and have each part on the disk before the next."""
    start = time.monotonic()
    with (FOLDER / "checkpoint").open("wb") as file:
        while not is_time(start):
            file.write(bytes(CHUNK))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.3)


def save_to_slow_share() -> None:
    """Have torch.save write to what takes 64 KiB at a time."""
    os.mkfifo(FOLDER / "model.pt")
    reader = subprocess.Popen([sys.executable, "-S", __file__, "take", str(FOLDER / "model.pt")])
    with (FOLDER / "model.pt").open("wb") as file:
        torch.save(torch.zeros(int(SILENT_S / 0.4) * CHUNK // 4), file)
    reader.wait()


def compile_step() -> None:
    """Wait for a compiler that works."""
    compiler = FOLDER / "cc1plus"
    compiler.symlink_to("/bin/bash")
    subprocess.run([str(compiler), "-c", f"while (( SECONDS < {SILENT_S:.0f} )); do :; done"], check=True)


def tokenize_part(_: int) -> int:
    """Work for the pool."""
    return compute()


def tokenize_all() -> None:
    """Tokenize with a pool of processes."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(tokenize_part, range(2))


class Rows:
    """One row that takes long."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return 1

    def __getitem__(self, number: int) -> int:
        """Decode a row."""
        return compute() % 2


def load_data() -> None:
    """Wait for a data worker that works."""
    list(torch.utils.data.DataLoader(Rows(), num_workers=1))  # type: ignore[arg-type]


def be_profiled() -> None:
    """Compute while py-spy stops and reads this process a hundred times a second."""
    py_spy = Path(sys.executable).with_name("py-spy")
    record = [str(py_spy), "record", "-d", "10", "-o", str(FOLDER / "profile"), "--pid", str(os.getpid())]
    with subprocess.Popen(record, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        compute()


def be_suspended() -> None:
    """Have a scheduler stop this job and let it go on."""
    script = "sleep 2; kill -STOP -$0; sleep 10; kill -CONT -$0"
    subprocess.run(["setsid", "sh", "-c", script, str(os.getpgrp())], check=True)


def read_slow_share() -> None:
    """Read a file whose storage gives 64 KiB at a time."""
    os.mkfifo(FOLDER / "shard")
    with subprocess.Popen([sys.executable, "-S", __file__, "give", str(FOLDER / "shard")]):
        (FOLDER / "shard").read_bytes()


def serve() -> None:
    """Poll for requests, of which none comes."""
    with select.epoll() as poll:
        start = time.monotonic()
        while not is_time(start):
            poll.poll(0.5)


def import_slowly() -> None:
    """Import a module whose body works for long."""
    (FOLDER / "plugin.py").write_text(BURN)
    sys.path.insert(0, str(FOLDER))
    importlib.import_module("plugin")


def prepare_cache() -> None:
    """Let one rank prepare what the other then finds, under a lock file."""
    if rank == 1:
        time.sleep(1)
    with (FOLDER / "cache.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not (FOLDER / "cache").exists():
            compute()
            (FOLDER / "cache").touch()


def download() -> None:
    """Read from a server that sends 64 KiB at a time."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with subprocess.Popen(
            [sys.executable, "-S", __file__, "serve", str(server.fileno())], pass_fds=[server.fileno()]
        ):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/")
            answer = connection.getresponse()
            while answer.read(CHUNK):
                pass


def compute_in_numpy() -> None:
    """Compute in numpy's threads."""
    import numpy as np  # noqa: PLC0415

    start, values = time.monotonic(), np.ones((300, 300))
    while not is_time(start):
        product = values @ values
        shifted = product - product.max(axis=1, keepdims=True)
        exponents = np.exp(shifted)
        values = exponents / exponents.sum(axis=1, keepdims=True)


def connect_again() -> None:
    """Wait for something that comes up late, with longer and longer pauses."""
    start, pause_s = time.monotonic(), 0.5
    while not is_time(start):
        time.sleep(pause_s)
        pause_s = min(3.0, pause_s * 1.5)


def export_trace() -> None:
    """Write a profiler's trace, compressed."""
    start = time.monotonic()
    with gzip.open(FOLDER / "trace.json.gz", "wt") as file:
        while not is_time(start):
            json.dump([{"name": f"op {n}", "dur": n * 0.7, "args": {"stack": [n] * 9}} for n in range(2000)], file)


def pickle_much() -> None:
    """Build many objects, pickle them and collect what is left."""
    start = time.monotonic()
    while not is_time(start):
        rows = [{str(n): [n, (n,), {n}]} for n in range(20000)]
        copy = pickle.loads(pickle.dumps(rows))
        assert len(copy) == len(rows)
        gc.collect()


def report_seldom() -> None:
    """Print progress every ten seconds."""
    for part in (1, 2):
        compute(10)
        sys.stdout.write(f"rank {rank}: {part} of 2\n")
        sys.stdout.flush()


ALONE: dict[str, Callable[[], None]] = {
    "evaluation": evaluate, "save": save_checkpoint, "slow_save": save_to_slow_share, "compile": compile_step,
    "pool": tokenize_all, "loader": load_data, "profiled": be_profiled, "suspended": be_suspended,
    "slow_share": read_slow_share, "import": import_slowly, "download": download, "adopted": evaluate,
    "numpy": compute_in_numpy, "trace": export_trace, "pickle": pickle_much,
}  # fmt: skip
TOGETHER: dict[str, Callable[[], None]] = {
    "server": serve, "lock": prepare_cache, "accumulation": evaluate, "backoff": connect_again, "seldom": report_seldom,
}  # fmt: skip


def launch() -> int:
    """Start both ranks and return the higher exit code; of `adopted` the shell of rank 0 ends at once."""
    held = socket.socket()  # until they have ended: a connection of somebody else could get a free port before rank 0
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
              "OMP_NUM_THREADS": "2" if WAY == "numpy" else "1"}  # fmt: skip
    started = []
    for number in ("0", "1"):
        command = [sys.executable, __file__, WAY, str(FOLDER)]
        if WAY == "adopted" and number == "0":
            command = ["sh", "-c", '"$@" & exit', "sh", "setsid", *command]
        environ = os.environ | common | {"RANK": number, "LOCAL_RANK": number}
        started.append(subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL))
    codes = [each.wait() for each in started]
    while WAY == "adopted" and max(codes) == 0 and not (FOLDER / "ended0").exists():
        time.sleep(0.1)
    return max(codes)


def hand_over() -> None:
    """Be the other end of a slow read or write: it takes, gives or serves 64 KiB at a time."""
    if WAY == "take":
        with FOLDER.open("rb", buffering=0) as file:
            while file.read(CHUNK):
                time.sleep(0.4)
        return
    if WAY == "give":
        with FOLDER.open("wb", buffering=0) as file:
            for _ in range(int(SILENT_S / 0.4)):
                file.write(bytes(CHUNK))
                time.sleep(0.4)
        return
    with socket.socket(fileno=int(str(FOLDER))) as server, server.accept()[0] as peer:
        peer.recv(CHUNK)
        count = int(SILENT_S / 0.4)
        peer.sendall(f"HTTP/1.0 200 OK\r\nContent-Length: {count * CHUNK}\r\n\r\n".encode())
        for _ in range(count):
            peer.sendall(bytes(CHUNK))
            time.sleep(0.4)


if __name__ == "__main__":
    if WAY in ("take", "give", "serve"):
        hand_over()
        sys.exit()
    if "RANK" not in os.environ:
        sys.exit(launch())
    import torch
    import torch.distributed as dist
    import torch.utils.data

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(1))
    sys.stderr.write(f"rank {rank} trains\n")
    if WAY in TOGETHER:
        TOGETHER[WAY]()
    elif rank == 0:
        ALONE[WAY]()
    dist.barrier()
    sys.stdout.write(f"done {rank}\n")
    sys.stdout.flush()
    dist.destroy_process_group()
    (FOLDER / f"ended{rank}").touch()
