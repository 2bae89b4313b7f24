from __future__ import annotations

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.gpus_of_node import has_nvidia
from preflight.model.facts import Gap, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.other_makers import OTHER_MAKERS, called, other_gpus


@node_check(
    "gpu-of-another-maker",
    blame=Blame.HARNESS,
    unseen=Unseen.NOTHING,
    reads=("nvidia_pci", "device_nodes", "other_devices", "software"),
)
def gpu_of_another_maker(node: NodeFacts, case: Case) -> Findings:
    """The GPUs and accelerators of the node are NVIDIA's, or the node has none.

    Yields a FAIL if the node has no NVIDIA GPU but accelerators of another maker. With `--backend gloo`, yields an INFO
    instead.

    Can't see: a GPU of a maker that preflight does not know.
    """
    # preflight tests NVIDIA GPUs only. Ranks on the CPU prove nothing for a job on other GPUs. The other makers are
    # AMD, Intel, Huawei, Habana and Google. Display controllers of AMD or Intel count if torch is built for them.
    if has_nvidia(node):
        raise NotApplicable("this node has NVIDIA GPUs")
    known(node.other_devices)
    found = other_gpus(node)
    for maker in OTHER_MAKERS:
        devices = tuple(each for each in found if each.what == maker.what)
        if devices:
            yield gpu_of_another_maker.finding(
                Severity.FAIL if case.wants_gpus else Severity.INFO,
                f"{node.host} {maker.what}s",
                f"the node has {called(devices)}, which are not tested, because preflight tests only NVIDIA GPUs",
                f"{maker.tools}; `preflight check --backend gloo` tests the CPU path",
                *(Evidence(each.what, each.device or each.where, each.where) for each in devices),
                *_build(node),
            )


def _build(node: NodeFacts) -> tuple[Evidence, ...]:
    torch = Gap("") if isinstance(node.software, Gap) else node.software.torch
    if isinstance(torch, Gap) or not torch.other_build:
        return ()
    return (Evidence("torch", f"{torch.version}, built for {torch.other_build}", torch.location),)
