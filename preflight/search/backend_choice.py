"""Choose the backend, the devices and the number of ranks of a run.

Broken GPUs are no reason to use gloo instead of NCCL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from preflight.errors import UsageError
from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.gap import known_or, or_none
from preflight.model.other_makers import called, other_gpus
from preflight.search.gpus.gpu_set import choose_gpus

CPU_RANKS = 2
MOST_RANKS = 256
BACKEND = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,31})(?:@([A-Za-z_][\w.]{0,199}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """The backend, the GPUs and the number of ranks of a run.

    If `blocked` has a reason, no rank is started.
    """

    backend: str
    backend_module: str
    dialect: str  # whose settings the backend reads and whose log it writes: "nccl" or "gloo"
    world_size: int
    gpus: tuple[Gpu, ...]
    wants_gpus: bool  # the run tests GPUs: of this machine, or of the machine that a stand-in backend simulates
    cpu_path: bool = False  # gloo because this machine has no NVIDIA GPU, not because the user chose it
    blocked: str = ""
    on_cpu: bool = False  # the ranks compute on the CPU, even if they simulate `gpus` of another machine


def choose_backend(
    backend: str | None, gpus: str | None, nproc: int | None, visible: str | None, node: NodeFacts, *,
    is_elsewhere: bool = False,
) -> BackendChoice:  # fmt: skip
    """Return the backend, the GPUs and the number of ranks for the given options.

    `visible` is CUDA_VISIBLE_DEVICES, or None if the variable is not set. Raise UsageError if the options contradict
    each other or name something that does not exist.
    """
    # If `is_elsewhere` is true, `node` describes another machine, and a simulated backend runs one rank for each chosen
    # GPU.
    if is_elsewhere:
        return _elsewhere(backend, gpus, nproc, visible, node)
    name, module = parse_backend(backend) if backend is not None else ("", "")
    if name and name != "nccl":
        return _without_gpus(name, module, gpus, nproc, cpu_path=False)
    has_hardware = has_nvidia_hardware(node)
    on_cpu = not name and gpus is None and not has_hardware
    if nproc is not None and not on_cpu:
        raise UsageError("--nproc: only for backends that need no GPU; choose GPUs with --gpus, one rank runs on each")
    no_gpu_to_test = "" if has_hardware else why_hardware_unknown(node) or why_not_testable(node)
    if no_gpu_to_test:
        return BackendChoice("nccl", module, "nccl", 0, (), wants_gpus=True, blocked=no_gpu_to_test)
    if on_cpu:
        return _without_gpus("gloo", "", None, nproc, cpu_path=True)
    if not has_hardware:
        asked = f"--gpus {gpus}" if gpus is not None else "--backend nccl"
        raise UsageError(f"{asked}: this machine shows no NVIDIA GPU (none on the PCI bus, no /dev/nvidia*)")
    # A request that names what is not there is wrong whatever else stands in its way.
    listed = known_or(node.gpus, ())
    chosen = choose_gpus(gpus, visible, listed, node) if listed else ()
    blocked = why_blocked(node) or why_unpinnable(chosen)
    chosen = () if blocked else chosen
    if not chosen and not blocked:
        raise UsageError(f"CUDA_VISIBLE_DEVICES={visible or ''} hides every GPU; unset it or name GPUs that are there")
    return BackendChoice("nccl", module, "nccl", len(chosen), chosen, wants_gpus=True, blocked=blocked)


def _elsewhere(
    backend: str | None, gpus: str | None, nproc: int | None, visible: str | None, node: NodeFacts
) -> BackendChoice:
    name, module = parse_backend(backend) if backend is not None else ("", "")
    if name in ("", "nccl", "gloo"):
        asked = f"--backend {name}" if name else "no --backend"
        raise UsageError(
            f"--machine with {asked}: the facts of another machine can't be tried with a real backend, which would run "
            "on this one; give a stand-in, such as --backend simnccl@simnccl, or use `preflight probe --machine`"
        )
    if nproc is not None:
        raise UsageError("--nproc with --machine: one rank stands for each GPU; choose GPUs with --gpus")
    if isinstance(node.gpus, Gap):
        raise UsageError(f"--machine: its GPUs are not known: {node.gpus.reason}")
    chosen = choose_gpus(gpus, visible, node.gpus, node) if node.gpus else ()
    if not chosen:
        shown = f"CUDA_VISIBLE_DEVICES={visible} hides every GPU of it" if node.gpus else "it has no GPU"
        raise UsageError(f"--machine: {shown}, so there is nothing that ranks could stand for")
    return BackendChoice(name, module, "nccl", len(chosen), chosen, wants_gpus=True, on_cpu=True)


def parse_backend(text: str) -> tuple[str, str]:
    """Return the name and the module in the value of --backend: `nccl`, `gloo` or `NAME@MODULE`."""
    match = BACKEND.fullmatch(text)
    if match is None or (match[1] not in ("nccl", "gloo") and match[2] is None):
        raise UsageError(f"--backend {text}: write nccl, gloo, or NAME@MODULE for a backend that MODULE registers")
    return match[1], match[2] or ""


def has_nvidia_hardware(node: NodeFacts) -> bool:
    """Return whether the PCI bus, /dev/nvidia* or NVML shows an NVIDIA GPU."""
    device_files = () if isinstance(node.device_nodes, Gap) else node.device_nodes.nvidia
    return bool(known_or(node.nvidia_pci, ()) or device_files or known_or(node.gpus, ()))


def why_hardware_unknown(node: NodeFacts) -> str:
    """Return why preflight can't know whether the node has an NVIDIA GPU.

    Return "" if the PCI bus and /dev could be read.
    """
    for what, fact in (("the PCI bus", node.nvidia_pci), ("/dev", node.device_nodes)):
        if isinstance(fact, Gap):
            unread = f"{what} could not be read ({fact.reason})"
            return f"{unread}, so there may be a GPU; `--backend gloo` tests the CPU path"
    return ""


def why_not_testable(node: NodeFacts) -> str:
    """Return why the accelerators of other vendors are not tested, or "" if there are no such devices."""
    others = other_gpus(node)
    if not others:
        return ""
    return f"the node has {called(others)}, but preflight tests NVIDIA GPUs only; `--backend gloo` tests the CPU path"


def why_blocked(node: NodeFacts) -> str:
    """Return why NCCL can't run on this node's GPUs at all, or "" if NCCL can be tried."""
    if isinstance(node.gpus, Gap):
        return f"NVML does not answer: {node.gpus.reason}"
    if not node.gpus:
        return "NVML lists no GPU"
    torch = None if isinstance(node.software, Gap) else or_none(node.software.torch)
    if torch is not None and isinstance(torch.cuda, Gap):
        return f"torch {torch.version} is built without CUDA"
    return ""


def why_unpinnable(chosen: Sequence[Gpu]) -> str:
    """Return why a rank can't be bound to a chosen GPU, or "" if the UUIDs of all chosen GPUs are known."""
    for gpu in chosen:
        if isinstance(gpu.uuid, Gap):
            return f"the UUID of GPU {gpu.nvml_index} could not be read: {gpu.uuid.reason}"
    return ""


def _without_gpus(name: str, module: str, gpus: str | None, nproc: int | None, *, cpu_path: bool) -> BackendChoice:
    if gpus is not None:
        raise UsageError(f"--gpus: the backend {name} runs on the CPU; leave out --gpus or --backend")
    world_size = CPU_RANKS if nproc is None else nproc
    if not 1 <= world_size <= MOST_RANKS:
        raise UsageError(f"--nproc {world_size}: give 1 to {MOST_RANKS} ranks")
    return BackendChoice(name, module, "gloo", world_size, (), wants_gpus=False, cpu_path=cpu_path, on_cpu=True)
