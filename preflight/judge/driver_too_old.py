"""A torch built for a newer CUDA than the driver runs sees no GPU at all."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus
from preflight.judge.hardware import severity_for_gpus
from preflight.judge.versions import version_tuple
from preflight.model.facts import Gap, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding

# Oldest driver for every minor version of a CUDA major (minor-version compatibility, CUDA release notes).
OLDEST = {13: (580,), 12: (525, 60, 13), 11: (450, 80, 2)}


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a finding where the driver is older than torch's CUDA major needs."""
    if not chosen_gpus(node, case):
        return
    torch = known(node.software).torch
    if isinstance(torch, Gap) or isinstance(torch.cuda, Gap):
        return
    driver = known(known(node.driver).version)
    oldest = OLDEST.get(next(iter(version_tuple(torch.cuda)), 0))
    if oldest is None or version_tuple(driver) >= oldest:
        return
    least = ".".join(map(str, oldest))
    yield Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=severity_for_gpus(case),
        subject=f"{node.host} NVIDIA driver",
        problem=f"driver {driver} is too old for torch {torch.version}, whose CUDA {torch.cuda} needs {least}",
        fix=f"install driver {least} or newer, or a torch that this driver runs: "
        "`pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/"
        f"{'cu126' if version_tuple(driver) >= OLDEST[12] else 'cu118'}`",
        evidence=(
            Evidence("driver", driver, "nvmlSystemGetDriverVersion"),
            Evidence("torch's CUDA", torch.cuda, torch.location),
        ),
    )


CHECK = NodeCheck(
    name="driver-too-old",
    promise="the driver is new enough for torch's CUDA",
    blame=Blame.CONFIGURATION,
    reads=("driver", "gpus", "software"),
    blind_to="a cuda-compat package, with which data-centre GPUs run newer CUDAs",
    judge=judge,
)
