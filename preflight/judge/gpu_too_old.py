"""A torch that holds no code for a GPU's generation fails with `no kernel image is available`."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus, must_be_known, name_of, subject
from preflight.judge.hardware import severity_for_gpus
from preflight.judge.versions import version_tuple
from preflight.model.facts import Gap, NodeFacts, TorchFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

# torch's CUDA from this version on -> the oldest and newest compute capability of its wheels (pytorch#157517).
WHEELS = (((13, 0), (7, 5), (99, 0)), ((12, 8), (7, 0), (12, 99)), ((11, 8), (5, 0), (9, 99)))


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a finding for each chosen GPU that is older or newer than what torch was built for."""
    gpus = chosen_gpus(node, case)
    if not gpus:
        return
    torch = known(node.software).torch
    if isinstance(torch, Gap) or isinstance(torch.cuda, Gap):
        return
    built_for = next((span for since, *span in WHEELS if version_tuple(torch.cuda) >= since), None)
    if built_for is None:
        return
    oldest, newest = built_for
    for gpu in gpus:
        capability = () if isinstance(gpu.compute_capability, Gap) else version_tuple(gpu.compute_capability)
        if capability and not oldest <= capability <= newest:
            told = f"{subject(node, gpu)} {name_of(gpu)}"
            yield _finding(
                told, torch, torch.cuda, ".".join(map(str, capability)), capability < oldest, severity_for_gpus(case)
            )
    must_be_known(((gpu, gpu.compute_capability) for gpu in gpus), "compute capability")


def _finding(told: str, torch: TorchFacts, cuda: str, capability: str, is_old: bool, severity: Severity) -> Finding:
    return Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=severity,
        subject=told,
        problem=f"compute capability {capability} is {'older' if is_old else 'newer'} than what torch {torch.version} "
        f"for CUDA {cuda} holds code for",
        fix="`pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/"
        f"{'cu126' if is_old else 'cu128'}`",
        evidence=(
            Evidence("compute capability", capability, "nvmlDeviceGetCudaComputeCapability"),
            Evidence("torch's CUDA", cuda, torch.location),
        ),
    )


CHECK = NodeCheck(
    name="gpu-too-old",
    promise="torch's wheels of this CUDA hold code for every chosen GPU",
    blame=Blame.CONFIGURATION,
    reads=("gpus", "software"),
    blind_to="a torch that was built from source for other GPUs",
    judge=judge,
)
