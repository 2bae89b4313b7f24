"""Run ranks of the real NCCL on a simulated machine and tell what NCCL chose.

`python -m tests.simcuda.run --machine h100x8 --nccl 2.27.5 [--gpus 0,1] [--data] [VAR=VALUE ...]`. Needs root: each
run has a /dev/shm, a /run and a network of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.simcuda.machine import Machine, install, named
from tests.simcuda.places import NCCL, WITH_DATA, built, missing, nccl

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier:1")
CHANNEL = re.compile(
    r"Channel \d+(?:/\d+)? : (?P<a>\d+)\[[0-9a-f]+\] -> (?P<b>\d+)\[[0-9a-f]+\] "
    r"(?:\[(?:send|receive)\] )?via (?P<via>.*)"
)
RESULT = re.compile(r"rank (?P<rank>\d+) (?P<what>\w+) (?P<code>-?\d+) (?P<text>.*)")
DATA = re.compile(r"rank (?P<rank>\d+) data (?P<collective>\w+) (?P<wrong>\d+) (?P<elements>\d+)")
NETWORK = re.compile(r"NET/Socket : Using (?P<what>\[.*)")
BOOTSTRAP = re.compile(r"(?:Bootstrap\s*: Using |; OOB )(?P<interface>[^\s:]+)")
NVLS_CHANNELS = re.compile(r"(\d+) nvls channels")


@dataclass(frozen=True, slots=True)
class Wiring:
    """What NCCL chose and how the run ended."""

    links: Mapping[
        tuple[int, int], str
    ]  # from rank to rank: "P2P/CUMEM", "SHM/direct/direct", "NET/Socket/0"; the ring's and the tree's
    kinds: Mapping[str, int]  # how many channel lines say this
    nvls: bool
    interfaces: tuple[str, ...]  # of NET/Socket, as "eth0"
    bootstrap: str  # the interface of the bootstrap, "" where the log does not say it
    results: Mapping[
        str, tuple[int, ...]
    ]  # by step (init, all_reduce, ..., destroy) the ncclResult_t of each rank that came to it
    wrong: Mapping[str, int] | None  # by collective the wrong elements of all ranks; None where no data moved
    warnings: tuple[str, ...]  # NCCL's, without time and process
    refused: tuple[str, ...]  # what the simulation did not know
    timed_out: bool
    seconds: float
    log: str

    @property
    def started(self) -> bool:
        """Whether every rank had a communicator."""
        return not self.timed_out and bool(self.results.get("init")) and not any(self.results["init"])

    @property
    def transports(self) -> frozenset[str]:
        """The first words: P2P, SHM, NET."""
        return frozenset(kind.split("/")[0] for kind in self.kinds)

    @property
    def right(self) -> bool:
        """Whether everything ended and every element was right."""
        ended = self.started and len(self.results.get("destroy", ())) == len(self.results["init"])
        return (
            ended
            and self.wrong is not None
            and not any(self.wrong.values())
            and not any(map(any, self.results.values()))
        )


def transports(
    machine: Machine | str,
    version: str = WITH_DATA,
    env: Mapping[str, str] | None = None,
    *,
    gpus: Sequence[int] | None = None,
    collectives: Sequence[str] | None = None,
    data: bool = False,
    shm_bytes: int | None = None,
    nodes: int = 1,
    limit_s: float = 30.0,
) -> Wiring:
    """Start a rank on each GPU and return what NCCL logged.

    Without `data` its kernels are not run, and only what it connected is told; with it (2.27.5) the collectives are
    computed and checked. `nodes` tells NCCL that equal parts of the ranks are on nodes of their own (NCCL_HOSTID).
    """
    if isinstance(machine, str):
        machine = named(machine)
    if data and version != WITH_DATA:
        raise ValueError(f"only NCCL {WITH_DATA} moves data here")
    if reason := missing():
        raise FileNotFoundError(reason)
    ordinals = list(range(len(machine.gpus))) if gpus is None else list(gpus)
    jobs = list(collectives if collectives is not None else COLLECTIVES if data else COLLECTIVES[:1])
    with tempfile.TemporaryDirectory(prefix="simcuda-") as folder:
        place = Path(folder)
        environ = _environ(machine, place, env or {}, data, nodes)
        environ["RANK_GPUS"] = ",".join(map(str, ordinals))
        command = [str(built("ranks")), str(len(ordinals)), str(nccl(version)), str(built("libcuda.so.1")), *jobs]
        since = time.monotonic()
        said, timed_out = _run(sandboxed(command, machine, place, shm_bytes), environ, limit_s)
        seconds = time.monotonic() - since
        log = "".join(path.read_text(errors="backslashreplace") for path in sorted(place.glob("nccl.*.log")))
    return read(said, log, timed_out, seconds, data)


def _environ(machine: Machine, place: Path, env: Mapping[str, str], data: bool, nodes: int) -> dict[str, str]:
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NCCL_", "SIMCUDA_", "CUDA_", "RANK_"))
    }
    environ |= install(machine, place, data)
    environ |= {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": str(place / "nccl.%p.log"),
        "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,GRAPH,ENV,NET,P2P,SHM",
    }
    if not data:
        environ |= {"SIMCUDA_KERNELS": "ignored", "RANK_NO_DATA": "1", "SIMCUDA_MEMORY_MIB": "16384"}  # never touched
    if nodes > 1:
        environ["RANK_NODES"] = str(nodes)
    return environ | dict(env)


def sandboxed(
    command: Sequence[str], machine: Machine, place: Path, shm_bytes: int | None = None, own_network: bool = True
) -> list[str]:
    """Return the command as it runs with processes, a /dev/shm, a /run and a network of its own: the machine's.

    The topology lies where NCCL looks for the one of a virtual machine, so that NCCL_TOPO_FILE stays the user's.
    """
    batch = place / "interfaces"
    batch.write_text(interfaces(machine))
    # Every address has a name, and nobody is asked for others: torch would wait for a resolver.
    names = place / "hosts"
    addresses = ("127.0.0.1", "::1", *(address for _, address in netifs(machine)))
    names.write_text("".join(f"{address} {os.uname().nodename} localhost\n" for address in addresses))
    size = f",size={shm_bytes}" if shm_bytes is not None else ""
    quoted = {what: shlex.quote(str(path)) for what, path in (("names", names), ("batch", batch))}
    topology = shlex.quote(str(place / "topology.xml"))
    script = (
        f"mount -t tmpfs -o mode=1777{size} tmpfs /dev/shm && mount -t tmpfs tmpfs /run"
        f" && mkdir -p /run/nvidia-topologyd && cp {topology} /run/nvidia-topologyd/virtualTopology.xml"
    )
    for name in ("class", "devices", "module"):  # what the machine's adapters add to /sys
        if (place / "sys" / name).is_dir():
            below = shlex.quote(f"lowerdir={place}/sys/{name}:/sys/{name}")
            script += f" && mount -t overlay -o {below} overlay /sys/{name}"
    if own_network:
        script += (
            f" && mount --bind {quoted['names']} /etc/hosts && mount --bind /dev/null /etc/resolv.conf"
            f" && ip -batch {quoted['batch']}"
        )
    script += f" && exec {shlex.join(command)}"
    unshared = ["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", *(["--net"] if own_network else [])]
    return ["unshare", *unshared, "sh", "-c", script]


def interfaces(machine: Machine) -> str:
    """Return what `ip -batch` makes of the machine's interfaces: those that are up and have an IPv4 address.

    Nobody is reached by the addresses of those that the setting NETIF_DEAD names: the rule comes before `local`.
    """
    lines = ["link set lo up"]
    dead = machine.settings.get("NETIF_DEAD", "").split(",")
    for name, address in netifs(machine):
        lines += [f"link add {name} type ifb", f"addr add {address}/16 dev {name}", f"link set {name} up"]
        lines += [f"rule add pref 10 to {address} lookup 66"] if name in dead else []
    if any(dead):
        lines += ["route add blackhole default table 66", "rule add pref 100 lookup local", "rule del pref 0"]
    return "\n".join(lines) + "\n"


def netifs(machine: Machine) -> list[tuple[str, str]]:
    """Return the interfaces that a run has, with their addresses."""
    found = []
    for netif in machine.node.get("netifs") or ():
        address = next((each for each in netif.get("addresses") or () if "." in each), None)
        if netif["kind"] != "loopback" and netif["is_up"] and address:
            found.append((str(netif["name"]), str(address)))
    return found


def _run(command: list[str], environ: Mapping[str, str], limit_s: float) -> tuple[str, bool]:
    with subprocess.Popen(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as ranks:
        try:
            return ranks.communicate(timeout=limit_s)[0], False
        except subprocess.TimeoutExpired:
            os.killpg(ranks.pid, signal.SIGKILL)
            return ranks.communicate()[0], True


def read(said: str, log: str, timed_out: bool, seconds: float, data: bool) -> Wiring:
    """Return what the ranks said and NCCL's log tells; pure."""
    links: dict[tuple[int, int], str] = {}
    kinds: Counter[str] = Counter()
    for channel in CHANNEL.finditer(log):
        via = channel["via"].split(" comm ")[0].strip()
        kinds[via] += 1
        links[int(channel["a"]), int(channel["b"])] = via
    results: dict[str, list[int]] = {}
    wrong: Counter[str] = Counter()
    for line in said.splitlines():
        if found := DATA.match(line):
            wrong[found["collective"]] += int(found["wrong"])
        elif found := RESULT.match(line):
            results.setdefault(found["what"], []).append(int(found["code"]))
    network = next(NETWORK.finditer(log), None)
    bootstrap = next(BOOTSTRAP.finditer(log), None)
    nvls = [int(found[1]) for found in NVLS_CHANNELS.finditer(log)]
    return Wiring(
        links,
        dict(kinds),
        any(nvls),
        tuple(re.findall(r"\[\d+\]([^\s:]+):", network["what"])) if network else (),
        bootstrap["interface"] if bootstrap else "",
        {what: tuple(codes) for what, codes in results.items()},
        dict(wrong) if data else None,
        tuple(dict.fromkeys(re.findall(r"NCCL WARN (.*)", log))),
        tuple(dict.fromkeys(re.findall(r"\[simcuda [\d.]+\] (REFUSED.*)", said))),
        timed_out,
        seconds,
        said + log,
    )


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def main() -> int:
    """Print what NCCL chose."""
    parser = argparse.ArgumentParser(prog="python -m tests.simcuda.run", description=__doc__)
    parser.add_argument(
        "--machine", default="pcie2-pix", help="a name of tests/machines or of tests/simcuda/machine.py"
    )
    parser.add_argument("--nccl", default=WITH_DATA, choices=list(NCCL))
    parser.add_argument("--gpus", help="CUDA ordinals, a rank on each; default all")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--data", action="store_true", help="compute the collectives and check them")
    parser.add_argument("--collectives", help=f"some of {','.join(COLLECTIVES)}, with :ELEMENTS")
    parser.add_argument("--shm-mib", type=int)
    parser.add_argument("--limit", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--log", action="store_true", help="print NCCL's log too")
    parser.add_argument("settings", nargs="*", metavar="VAR=VALUE")
    options = parser.parse_intermixed_args()
    if os.geteuid() or not shutil.which("unshare"):
        sys.exit("simcuda: needs root, for a /dev/shm and a network of its own")
    wiring = transports(
        options.machine,
        options.nccl,
        dict(setting.split("=", 1) for setting in options.settings),
        gpus=[int(word) for word in options.gpus.split(",")] if options.gpus else None,
        collectives=options.collectives.split(",") if options.collectives else None,
        data=options.data,
        nodes=options.nodes,
        shm_bytes=options.shm_mib << 20 if options.shm_mib is not None else None,
        limit_s=options.limit,
    )
    if options.log:
        _say(wiring.log)
    _say(f"{options.machine} NCCL {options.nccl} {' '.join(options.settings)}: {wiring.seconds:.2f} s")
    _say(
        "  channels  ",
        ", ".join(f"{count} via {kind}" for kind, count in wiring.kinds.items()) or "none",
        "+ NVLS" if wiring.nvls else "",
    )
    _say("  network   ", ", ".join(wiring.interfaces) or "none", "  bootstrap", wiring.bootstrap or "?")
    _say(
        "  results   ",
        ", ".join(f"{what} {sorted(set(codes))} x{len(codes)}" for what, codes in wiring.results.items()),
        "TIMED OUT" if wiring.timed_out else "",
    )
    if wiring.wrong is not None:
        _say("  data      ", "all right" if wiring.right else f"WRONG: {dict(wiring.wrong)}")
    for text in (*wiring.warnings[:6], *wiring.refused[:6]):
        _say("  said      ", text)
    return 0 if wiring.started else 1


if __name__ == "__main__":
    sys.exit(main())
