"""A torch built for the CPU on a machine with GPUs trains on none of them."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.hardware import has_nvidia, severity_for_gpus
from preflight.judge.versions import version_tuple
from preflight.model.facts import Gap, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding

WHEELS = ((13, "cu130"), (12, "cu126"), (11, "cu118"))  # newest CUDA major that the driver runs -> index of torch


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a finding where NVIDIA hardware is there and torch was built without CUDA."""
    if not has_nvidia(node):
        return
    torch = known(node.software).torch
    if isinstance(torch, Gap) or not isinstance(torch.cuda, Gap):
        return
    yield Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=severity_for_gpus(case),
        subject=f"{node.host} torch",
        problem=f"there are NVIDIA GPUs here, but torch {torch.version} was built without CUDA",
        fix=_fix(node),
        evidence=(
            Evidence("torch", torch.version, torch.location),
            Evidence("torch's CUDA", f"none: {torch.cuda.reason}", torch.location),
        ),
    )


def _fix(node: NodeFacts) -> str:
    cuda = None if isinstance(node.driver, Gap) or isinstance(node.driver.cuda, Gap) else node.driver.cuda
    major = version_tuple(cuda)[:1] if cuda else ()
    wheel = next((name for least, name in WHEELS if major >= (least,)), None)
    if wheel is None:
        return (
            "`nvidia-smi` names the newest CUDA that the driver runs; install the torch for it: "
            "`pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126`"
        )
    return (
        f"the driver runs CUDA {cuda}: "
        f"`pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{wheel}`"
    )


CHECK = NodeCheck(
    name="torch-without-cuda",
    promise="on a machine with NVIDIA GPUs torch was built with CUDA",
    blame=Blame.CONFIGURATION,
    reads=("nvidia_pci", "device_nodes", "software", "driver"),
    blind_to="whether the driver is new enough for torch's CUDA",
    judge=judge,
)
