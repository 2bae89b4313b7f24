"""An NVLink that is down takes its share of the bandwidth from every collective, without an error."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus, is_chosen, must_be_known, name_of, subject
from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gpu import LinkPeer


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a finding for each chosen GPU with fewer active links than another of its model.

    Without switches, GPUs may be bridged or not: one without any active link has no bridge, which is no fault.
    """
    if not chosen_gpus(node, case) or isinstance(node.gpus, Gap):
        return
    for gpu in node.gpus:
        most = max(active_links(other) for other in node.gpus if name_of(other) == name_of(gpu))
        has = active_links(gpu)
        may_have = has + sum(isinstance(state, Gap) for state in link_states(gpu))
        switched = any(has_switch(other) for other in node.gpus)
        has_fewer = may_have < most and (has or switched) and not isinstance(gpu.nvlinks, Gap)
        if has_fewer and is_chosen(gpu.nvml_index, case):
            yield _finding(node, gpu, has, most, Severity.FAIL if switched else Severity.WARN)
    chosen = chosen_gpus(node, case)
    must_be_known(((gpu, value) for gpu in chosen for value in (gpu.nvlinks, *link_states(gpu))), "NVLinks")


def link_states(gpu: Gpu) -> tuple[bool | Gap, ...]:
    """Return of each NVLink whether it is up."""
    return () if isinstance(gpu.nvlinks, Gap) else tuple(link.is_active for link in gpu.nvlinks)


def active_links(gpu: Gpu) -> int:
    """Return how many of the GPU's NVLinks are up."""
    return 0 if isinstance(gpu.nvlinks, Gap) else sum(link.is_active is True for link in gpu.nvlinks)


def has_switch(gpu: Gpu) -> bool:
    """Tell whether an NVSwitch is at the other end of any of the GPU's links."""
    return not isinstance(gpu.nvlinks, Gap) and any(link.peer is LinkPeer.SWITCH for link in gpu.nvlinks)


def _finding(node: NodeFacts, gpu: Gpu, has: int, most: int, severity: Severity) -> Finding:
    links = () if isinstance(gpu.nvlinks, Gap) else gpu.nvlinks
    down = ", ".join(str(link.link) for link in links if link.is_active is False)
    return Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=severity,
        subject=subject(node, gpu),
        problem=f"{has} of {most} NVLinks are up{f' (down: {down})' if down else ''}; its peers have {most}",
        fix="`nvidia-smi nvlink -s` and `dmesg | grep -i nvlink`; reset all GPUs of the board or reboot, then reseat "
        "the board or the bridge",
        evidence=(Evidence("active links", f"{has}, peers {most}", "nvmlDeviceGetNvLinkState"),),
    )


CHECK = NodeCheck(
    name="nvlink-down",
    promise="every chosen GPU has as many NVLinks up as others of its model here",
    blame=Blame.GPU,
    reads=("gpus",),
    blind_to="a link that is down on all GPUs, and one that is up and slow",
    judge=judge,
)
