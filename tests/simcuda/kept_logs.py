"""The kept logs of the real NCCL (`logs/*.log.gz`); `python -m tests.simcuda.kept_logs` writes them anew.

With what preflight's trials ask for (NCCL_DEBUG_SUBSYS), without host names and process ids.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.simcuda.places import NCCL
from tests.simcuda.run import transports

FOLDER = Path(__file__).with_name("logs")
SUBSYSTEMS = {"NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,TUNING"}  # as search/settings/environment.py has it
OFF = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
FEW = {"NCCL_MAX_NCHANNELS": "2"}


@dataclass(frozen=True, slots=True)
class Situation:
    """A machine, its ranks, a setting."""

    machine: str
    gpus: tuple[int, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    shm_bytes: int | None = None


SITUATIONS: Mapping[str, Situation] = {
    "p2p": Situation("a100x4", (0, 1, 2, 3)),
    "shm": Situation("pcie2-pix", (0, 1), {"NCCL_P2P_DISABLE": "1"}),
    "sockets": Situation("l20x10_ens34", (0, 1), OFF),
    "cards": Situation("pcie4-nics", (0, 1, 2, 3)),
    "nvls": Situation("h100x8", (0, 1, 2), FEW | {"NCCL_P2P_DISABLE": "1"}),
    "nvls-unbound": Situation("h100x8", (0, 1, 2), FEW | {"SIMCUDA_NVLS": "cannot-bind"}),
    "no-interface": Situation("pcie2-pix", (0, 1), {"NCCL_SOCKET_IFNAME": "=eth9"}),
    "small-shm": Situation("pcie2-pix", (0, 1), {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_HOST_ENABLE": "0"}, 4 << 20),
}


def names() -> list[tuple[str, str]]:
    """Return the kept logs as (version, situation)."""
    return [(version, situation) for version in NCCL for situation in SITUATIONS]


def kept(version: str, situation: str) -> str:
    """Return a kept log."""
    return gzip.decompress((FOLDER / f"{version}-{situation}.log.gz").read_bytes()).decode()


def anonymous(log: str) -> str:
    """Return NCCL's own lines with `host` and small numbers where hosts and processes were named."""
    numbers: dict[str, str] = {}

    def put(hit: re.Match[str]) -> str:
        return ":".join(("host", *(numbers.setdefault(pid, str(len(numbers) + 1)) for pid in hit.groups())))

    ours = re.compile(r"rank \d+ |\[simcuda |.*SIMCUDA_")
    lines = [line for line in log.splitlines() if not ours.match(line)]
    text = re.sub(r"(?<![\w.])[A-Za-z][\w.-]*:(\d+):(\d+)(?= \[)", put, "\n".join(lines) + "\n")
    return re.sub(r"/tmp/simcuda-\w+", "/tmp/run", text)


def main() -> None:
    """Write the logs anew."""
    FOLDER.mkdir(exist_ok=True)
    for version, name in names():
        asked = SITUATIONS[name]
        env = {**SUBSYSTEMS, **asked.env}
        run = transports(asked.machine, version, env, gpus=asked.gpus, shm_bytes=asked.shm_bytes)
        (FOLDER / f"{version}-{name}.log.gz").write_bytes(gzip.compress(anonymous(run.log).encode(), 9, mtime=0))
        sys.stdout.write(f"{version} {name}: {dict(run.kinds)} {dict(run.results)} {run.warnings[:2]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
