from __future__ import annotations

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.gpus_of_node import chosen_gpus, must_be_known, name_of, severity_for_gpus, subject
from preflight.model.facts import Gap, NodeFacts, TorchFacts, known, known_or
from preflight.model.finding import Blame, Evidence, Unseen
from preflight.model.parsing import version_tuple

REINSTALL = "run `pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/"
# Oldest driver for every minor version of a CUDA major (minor-version compatibility, CUDA release notes).
OLDEST = {13: (580,), 12: (525, 60, 13), 11: (450, 80, 2)}


@node_check("driver-too-old", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("driver", "gpus", "software"))
def driver_too_old(node: NodeFacts, case: Case) -> Findings:
    """The driver is new enough for torch's CUDA.

    Yields a FAIL if the driver is too old for torch's CUDA major version. With a backend that needs no GPU, yields a
    WARN instead.

    Can't see: a cuda-compat package, with which data-center GPUs run newer CUDA versions.
    """
    # If torch is built for a newer CUDA than the driver supports, torch finds no GPU.
    chosen_gpus(node, case)
    torch, cuda = _torch_with_cuda(node)
    driver = known(known(node.driver).version)
    oldest = OLDEST.get(next(iter(version_tuple(cuda)), 0))
    if oldest is None:
        raise UnreadableFact(f"the driver that CUDA {cuda} needs is not in the table")
    if not version_tuple(driver):
        raise UnreadableFact(f"the driver's version {driver!r} has no number")
    if version_tuple(driver) >= oldest:
        return
    least = ".".join(map(str, oldest))
    yield driver_too_old.finding(
        severity_for_gpus(case),
        f"{node.host} NVIDIA driver",
        f"driver {driver} is too old for torch {torch.version}: CUDA {cuda} needs driver {least}",
        f"install driver {least} or newer, or a torch that this driver runs: "
        f"{REINSTALL}{'cu126' if version_tuple(driver) >= OLDEST[12] else 'cu118'}`",
        Evidence("driver", driver, "nvmlSystemGetDriverVersion"),
        Evidence("torch's CUDA", cuda, torch.location),
    )


def _torch_with_cuda(node: NodeFacts) -> tuple[TorchFacts, str]:
    """Return torch and the version of its CUDA.

    Raise NotApplicable if torch or its CUDA is missing. The checks torch-version and torch-without-cuda report this.
    """
    torch = known(node.software).torch
    if isinstance(torch, Gap):
        raise NotApplicable(f"there is no torch: {torch.reason}")
    if isinstance(torch.cuda, Gap):
        raise NotApplicable(f"torch has no CUDA: {torch.cuda.reason}")
    return torch, torch.cuda


# torch's CUDA from this version on -> the oldest and newest compute capability of its wheels (pytorch#157517).
WHEELS = (((13, 0), (7, 5), (99, 0)), ((12, 8), (7, 0), (12, 99)), ((11, 8), (5, 0), (9, 99)))


@node_check("gpu-too-old", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("gpus", "software"))
def gpu_too_old(node: NodeFacts, case: Case) -> Findings:
    """Torch's wheels for this CUDA version contain code for every chosen GPU.

    Yields a FAIL for each chosen GPU that is older or newer than the GPUs of the torch build. With a backend that needs
    no GPU, yields a WARN instead.

    Can't see: a torch that was built from source for other GPUs.
    """
    # A torch without code for a GPU's generation fails with `no kernel image is available`.
    gpus = chosen_gpus(node, case)
    torch, cuda = _torch_with_cuda(node)
    built_for = next((span for since, *span in WHEELS if version_tuple(cuda) >= since), None)
    if built_for is None:
        raise UnreadableFact(f"the GPUs that torch's wheels for CUDA {cuda} support are not in the table")
    oldest, newest = built_for
    for gpu in gpus:
        capability = version_tuple(known_or(gpu.compute_capability, ""))
        if capability and not oldest <= capability <= newest:
            is_old, shown = capability < oldest, ".".join(map(str, capability))
            yield gpu_too_old.finding(
                severity_for_gpus(case),
                f"{subject(node, gpu)} {name_of(gpu)}",
                f"compute capability {shown} is {'older' if is_old else 'newer'} than what torch {torch.version} "
                f"for CUDA {cuda} holds code for",
                f"{REINSTALL}{'cu126' if is_old else 'cu128'}`",
                Evidence("compute capability", shown, "nvmlDeviceGetCudaComputeCapability"),
                Evidence("torch's CUDA", cuda, torch.location),
            )
    must_be_known(((gpu, gpu.compute_capability) for gpu in gpus), "compute capability")
