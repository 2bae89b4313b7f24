"""`make fuzz MINUTES=n`: mutate good input for every parser; each call returns or raises our error, within bounds.

    python -m tests.hostile.fuzz [--minutes 1] [--mutations N] [--seed S]

What fails is kept in tests/hostile/corpus/PARSER/, which later runs try first. Exit code 1 where something failed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import pickle
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from preflight.errors import PreflightError
from preflight.explain.explain_logs import Log, explain
from preflight.explain.flight_recorder import read_recording
from preflight.judge.policy import parse_policy
from preflight.launch.launch_result import parse_event
from preflight.launch.nodes.hostlist import expand_hosts
from preflight.launch.nodes.placement import Asked, find_placement
from preflight.launch.nodes.wire import parse_message
from preflight.model.saved_report import load_baseline, load_report
from preflight.probe.capture import open_capture
from preflight.probe.process import parse_nccl_conf
from preflight.probe.topo_facts import topology_facts
from preflight.render.formats import Format, render_as
from preflight.render.json_document import render_json
from preflight.system.inputs import as_text
from preflight.timeout.job_text import parse_model_shape
from tests.render.judged import BLAMED, accepted

CORPUS = Path(__file__).parent / "corpus"
MACHINES = Path(__file__).resolve().parents[1] / "machines"
MOST_S = 5.0
MOST_MB = 500
CHECKS = frozenset({"shm-size", "memlock", "gpu-driver"})
BASE = {
    "baseline_schema": 1, "created_at": "x", "preflight_version": "0", "hosts": ["a"], "references": [
        {"backend": "gloo", "world_size": 2, "collective": "all_reduce", "group": "large", "size_bytes": 8,
         "busbw_gb_s": 1.0, "nodes": 3, "repetitions": 2, "between_nodes": 0.1, "between_repetitions": 0.1}],
}  # fmt: skip
POLICY = (
    b'[checks]\nmemlock = "fatal"\n[[waivers]]\ncheck = "memlock"\nsubject = "x"\nreason = "y"\nuntil = "2030-01-01"\n'
)
TOPOLOGY = b"""\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tPIX\t0-47,96-143\t0\t\tN/A
GPU1\tNV18\t X \tSYS\t48-95,144-191\t1\t\tN/A
NIC0\tPIX\tSYS\t X

NIC Legend:

  NIC0: mlx5_0
"""
LOG = b"""[rank3]:[E812 10:00:00.0 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught
 collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000)
 ran for 600029 milliseconds before timing out.
n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n[rank1]: torch.OutOfMemoryError: CUDA out of memory.
"""
DUMP = pickle.dumps(
    {"version": "2.4", "entries": [{"collective_seq_id": n, "process_group": ("0", "default_pg"), "is_p2p": False,
     "profiling_name": "nccl:all_reduce", "input_sizes": [[4]]} for n in range(3)]}, protocol=2)  # fmt: skip
SLURM = {"SLURM_NNODES": "2", "SLURM_NODEID": "0", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "2",
         "SLURM_JOB_NODELIST": "n[1-2]", "PET_NNODES": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "1"}  # fmt: skip
TOKENS = (
    b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", b'"\\udc00"', b"9" * 5000, b"-1", b"1e999", b"NaN", b"null",
    b"[", b"{", b"]", b"}", b'"', b",", b":", b"\n", b"\t", b"0-99999999", b"n[1-999999999]", b"\x1b[3m",
    "²".encode(), "٣".encode(),
    b"true", b"[[[[[[", b'{"a":', b"\x80\x02", b"\x8a\xff", b"\r", b"%s", b"$(id)", b"  ", b"=", b"GPU9999", b"NV99",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """A parser, and good input for it."""

    name: str
    parse: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def _report(data: bytes) -> None:
    report = load_report(as_text(data))
    for form in (Format.ENV, Format.CONSOLE, Format.JUNIT, Format.PROMETHEUS, Format.DRAIN):
        render_as(form, report)


def _placement(data: bytes) -> None:
    words = (line.partition("=") for line in as_text(data).split("\n"))
    find_placement(Asked(), {name: value for name, _, value in words if name})


def targets() -> tuple[Target, ...]:
    """Return every parser of what comes from outside."""
    reports = tuple(render_json(report).encode() for report in (accepted(), *(make() for make in BLAMED.values())))
    captures = tuple(path.read_bytes() for path in sorted(MACHINES.glob("*.json"))[:3])
    config = json.dumps(
        {"hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 9, "text_config": {"n_layer": 3}}
    ).encode()
    slurm = "\n".join(f"{name}={value}" for name, value in SLURM.items()).encode()
    return (
        Target("report", _report, reports),
        Target("baseline", lambda data: load_baseline(as_text(data)), (json.dumps(BASE).encode(),)),
        Target("policy", lambda data: parse_policy(as_text(data), "p.toml", CHECKS, "2026-01-01"), (POLICY,)),
        Target("capture", lambda data: open_capture(as_text(data)), captures),
        Target("topology", lambda data: topology_facts(as_text(data)), (TOPOLOGY,)),
        Target("model_config", lambda data: parse_model_shape(as_text(data), "config.json"), (config,)),
        Target("flight_recorder", lambda data: read_recording("nccl_trace_rank_0", data), (DUMP,)),
        Target("log", lambda data: explain([Log("x.log", [data])]), (LOG,)),
        Target(
            "nccl_conf", lambda data: parse_nccl_conf("/etc/nccl.conf", as_text(data)), (b"NCCL_DEBUG=INFO\n#x\nA=b\n",)
        ),
        Target("hostlist", lambda data: expand_hosts(as_text(data)), (b"n[1-3,07],gpu[01-02]-ib,solo",)),
        Target("placement", _placement, (slurm,)),
        Target("message", parse_message, (b'{"kind": "hello", "rank": 1}\n',)),
        Target("event", parse_event, (b'{"event": "step", "label": "x"}\n',)),
    )


def mutate(data: bytes, other: bytes, random_: random.Random) -> bytes:
    """Return the data after one to six changes."""
    made = bytearray(data)
    for _ in range(random_.randint(1, 6)):
        at = random_.randrange(len(made) + 1)
        end = min(len(made), at + random_.choice((1, 1, 2, 8, 64, 1000)))
        match random_.randrange(7):
            case 0 if made:
                made[at % len(made)] ^= 1 << random_.randrange(8)
            case 1:
                del made[at:end]
            case 2:
                made[at:at] = made[at:end] * random_.choice((1, 2, 50))
            case 3:
                made[at:end] = random_.choice(TOKENS)
            case 4:
                made[at:at] = random_.choice(TOKENS)
            case 5:
                cut = random_.randrange(len(other) + 1)
                made[at:] = other[cut : cut + 20_000]
            case _:
                made[at:end] = bytes(random_.randrange(256) for _ in range(min(8, end - at)))
    return bytes(made[: 1 << 20])


def trouble_of(target: Target, data: bytes) -> str:
    """Return what is wrong with how a parser took it, "" where nothing is."""
    started = time.process_time()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            target.parse(data)
    except PreflightError:
        pass
    except Exception as error:  # noqa: BLE001  that is what is looked for
        return f"{type(error).__name__}: {str(error)[:120]}"
    took_s = time.process_time() - started
    return f"took {took_s:.1f} s" if took_s > MOST_S else ""


def kept(target: Target) -> Iterator[bytes]:
    """Yield what failed once."""
    for path in sorted((CORPUS / target.name).glob("*")):
        yield path.read_bytes()


def keep(target: Target, data: bytes) -> Path:
    """Keep an input that failed."""
    folder = CORPUS / target.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Fuzz, print what was done per parser, and tell whether anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--mutations", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    asked = parser.parse_args()
    say(f"seed {asked.seed}")
    random_, until = random.Random(asked.seed), time.monotonic() + 60 * asked.minutes
    found: dict[str, Path] = {}
    done: dict[str, int] = {}
    all_targets = targets()
    for target in all_targets:
        for data in (*target.seeds, *kept(target)):
            if why := trouble_of(target, data):
                found.setdefault(f"{target.name}: {why}", keep(target, data))
    while time.monotonic() < until and sum(done.values()) < asked.mutations:
        for target in all_targets:
            slice_ends = time.monotonic() + 0.2  # every parser has its share of the time
            while time.monotonic() < slice_ends:
                data = mutate(random_.choice(target.seeds), random_.choice(target.seeds), random_)
                done[target.name] = done.get(target.name, 0) + 1
                if why := trouble_of(target, data):
                    found.setdefault(f"{target.name}: {why}", keep(target, data))
    most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    say(", ".join(f"{name} {count}" for name, count in done.items()))
    say(f"{sum(done.values())} mutations, {len(found)} failures, at most {most_mb} MB")
    for why, path in found.items():
        say(f"  {why}: kept as {path}")
    return int(bool(found) or most_mb > MOST_MB)


if __name__ == "__main__":
    sys.exit(main())
