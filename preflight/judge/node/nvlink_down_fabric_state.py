from __future__ import annotations

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.gpus_of_node import chosen_gpus, has_switch, must_be_known, name_of, subject
from preflight.judge.node_limits import is_contained
from preflight.model.facts import Gap, Gpu, NodeFacts, known, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gap import NOT_OFFERED
from preflight.model.gpu import Fabric, FabricState, may_span_nodes
from preflight.model.parts import part_of_gpu
from preflight.model.repairs import FABRIC_MANAGER


@node_check("nvlink-down", blame=Blame.GPU, unseen=Unseen.ACCEPTANCE, reads=("gpus",))
def nvlink_down(node: NodeFacts, case: Case) -> Findings:
    """Every chosen GPU has as many active NVLinks as the other GPUs of its model on this node.

    Yields a FAIL for each chosen GPU with fewer active links than another GPU of its model. On a node without
    NVSwitches, yields a WARN instead.

    Can't see: a link that is down on all GPUs, and a link that is up but slow.
    """
    # An NVLink that is down slows every collective without an error. On a node without NVSwitches, a GPU without any
    # active link has no NVLink bridge, which is no fault.
    chosen = chosen_gpus(node, case)
    all_gpus = known(node.gpus)
    if not any(known_or(gpu.nvlinks, ()) for gpu in all_gpus) and not any(_is_unread(gpu) for gpu in chosen):
        raise NotApplicable("these GPUs have no NVLinks")
    switched = any(has_switch(gpu) for gpu in all_gpus)
    if not switched and len(all_gpus) == 1 and not _is_unread(all_gpus[0]):
        raise NotApplicable("a single GPU has nothing at the other end of its NVLinks")
    for gpu in chosen:
        most = max(active_links(other) for other in all_gpus if name_of(other) == name_of(gpu))
        has = active_links(gpu)
        may_have = has + sum(isinstance(state, Gap) for state in link_states(gpu))
        if may_have < most and (has or switched) and not isinstance(gpu.nvlinks, Gap):
            down = [str(link.link) for link in gpu.nvlinks if link.is_active is False]
            are_down = (
                f", link{'s' * (len(down) > 1)} {', '.join(down)} {'are' if down[1:] else 'is'} not" if down else ""
            )
            yield nvlink_down.finding(
                Severity.FAIL if switched else Severity.WARN,
                subject(node, gpu),
                f"only {has} of {most} NVLinks are up{are_down}; the other GPUs have {most}",
                "run `nvidia-smi nvlink -s` and `dmesg | grep -i nvlink`. Reset all GPUs of the board, or reboot. If "
                "the link stays down, reseat the bridge, or let the vendor check the board",
                Evidence("active links", f"{has}, peers {most}", "nvmlDeviceGetNvLinkState"),
                parts=part_of_gpu(node, gpu.nvml_index),
            )
    must_be_known(((gpu, value) for gpu in chosen for value in (gpu.nvlinks, *link_states(gpu))), "NVLinks")


def _is_unread(gpu: Gpu) -> bool:
    return isinstance(gpu.nvlinks, Gap) and not gpu.nvlinks.reason.startswith(NOT_OFFERED)


def link_states(gpu: Gpu) -> tuple[bool | Gap, ...]:
    """Return whether each NVLink of the GPU is up, or () if the links could not be read."""
    return tuple(link.is_active for link in known_or(gpu.nvlinks, ()))


def active_links(gpu: Gpu) -> int:
    """Return the number of the GPU's NVLinks that are known to be up."""
    return sum(is_active is True for is_active in link_states(gpu))


FIX = f"{FABRIC_MANAGER}; NVLink 5 boards need nvlsm and ib_umad as well"
CHANNELS = "nvidia-caps-imex-channels"  # below /dev; nothing makes it by default
NO_CHANNEL = (
    "for jobs on several nodes, load the driver with NVreg_CreateImexChannel0=1 and start nvidia-imex on each node "
    "(`nvidia-imex-ctl -N` shows its state). Pass /dev/nvidia-caps-imex-channels into containers"
)


@node_check("fabric-state", blame=Blame.FABRIC, unseen=Unseen.ACCEPTANCE, reads=("gpus", "device_nodes", "system"))
def fabric_state(node: NodeFacts, case: Case) -> Findings:
    """On an NVSwitch machine, every chosen GPU is registered with the fabric.

    Yields a FAIL if the registration failed or is not complete, and a WARN if the fabric is unhealthy. If Grace nodes
    share a fabric without an IMEX channel, yields a WARN for a job on several nodes, else an INFO.

    Can't see: GPUs before Hopper, for which the driver reports no fabric state, and whether the IMEX daemons reach each
    other.
    """
    # Until the Fabric Manager has registered a GPU, the GPU can't compute (CUDA error 802).
    gpus = chosen_gpus(node, case)
    if not any(has_switch(gpu) for gpu in known(node.gpus)):
        raise NotApplicable("no NVSwitch joins these GPUs")
    for gpu in gpus:
        fault = None if isinstance(gpu.fabric, Gap) else _fault(gpu.fabric)
        if fault:
            severity, problem, observed = fault
            yield fabric_state.finding(
                severity,
                subject(node, gpu),
                problem,
                FIX,
                Evidence("state of the NVLink fabric", observed, "nvmlDeviceGetGpuFabricInfoV"),
            )
    files = None if isinstance(node.device_nodes, Gap) else node.device_nodes.nvidia
    if files is not None and CHANNELS not in files and any(map(may_span_nodes, gpus)):
        yield fabric_state.finding(
            Severity.WARN if len(case.nodes) > 1 else Severity.INFO,
            node.host,
            "there is no IMEX channel, so NCCL reaches the GPUs of other nodes over the network instead of NVLink",
            NO_CHANNEL,
            Evidence("/dev", f"no {CHANNELS}", "NVIDIA's IMEX guide"),
            blame=Blame.CONTAINER if is_contained(node) else None,
        )
    must_be_known(((gpu, gpu.fabric) for gpu in gpus), "fabric state")


def _fault(fabric: Fabric) -> tuple[Severity, str, str] | None:
    failed = known_or(fabric.problem, "")
    faults = ", ".join(known_or(fabric.health, ())).replace("_", " ")
    if fabric.state in (FabricState.NOT_STARTED, FabricState.IN_PROGRESS):
        progress = "has not begun" if fabric.state is FabricState.NOT_STARTED else "is still in progress"
        state = fabric.state.value.replace("_", " ")
        return Severity.FAIL, f"registration with the NVSwitch fabric {progress}", state
    if fabric.state is FabricState.COMPLETED and failed:
        return Severity.FAIL, f"registration with the NVSwitch fabric failed: {failed}", failed
    return (Severity.WARN, f"the NVSwitch fabric is not healthy: {faults}", faults) if faults else None
