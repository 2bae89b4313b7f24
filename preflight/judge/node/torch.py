from __future__ import annotations

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.gpus_of_node import must_have_nvidia, severity_for_gpus
from preflight.model.facts import Gap, NodeFacts, known, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.parsing import version_tuple

OLDEST_RUN = (2, 1)


@node_check("torch-version", blame=Blame.HARNESS, unseen=Unseen.NOTHING, reads=("software",))
def torch_version(node: NodeFacts, case: Case) -> Findings:
    """Torch is installed, and is not older than the oldest version that preflight was tested with.

    Yields a FAIL if torch is missing (an INFO for `probe`), and a WARN if torch is too old.

    Can't see: whether torch can be imported.
    """
    # Without torch, no rank can run. `probe` needs no torch.
    torch = known(node.software).torch
    if isinstance(torch, Gap):
        yield torch_version.finding(
            Severity.FAIL if case.world_size else Severity.INFO,
            f"{node.host} torch",
            f"torch was not found, so no trial can run: {torch.reason}",
            "run `source VENV/bin/activate && pip install preflight-nccl` in the training environment. If there is no "
            "such environment, run `pip install 'preflight-nccl[torch]'`",
            Evidence("torch", torch.reason, "installed packages of the Python that runs preflight"),
        )
    elif (0,) < version_tuple(torch.version) < OLDEST_RUN:
        oldest = ".".join(map(str, OLDEST_RUN))
        yield torch_version.finding(
            Severity.WARN,
            f"{node.host} torch",
            f"torch {torch.version} is older than {oldest}, the oldest version that preflight was tested with",
            f"train with torch {oldest} or newer, or confirm this run's results by another test",
            Evidence("torch", torch.version, torch.location),
        )


WHEELS = ((13, "cu130"), (12, "cu126"), (11, "cu118"))  # newest CUDA major that the driver runs -> index of torch


@node_check(
    "torch-without-cuda",
    blame=Blame.CONFIGURATION,
    unseen=Unseen.NOTHING,
    reads=("nvidia_pci", "device_nodes", "software", "driver"),
)
def torch_without_cuda(node: NodeFacts, case: Case) -> Findings:
    """On a machine with NVIDIA GPUs, torch was built with CUDA.

    Yields a FAIL if torch was built without CUDA, or a WARN if the backend needs no GPU.

    Can't see: whether the driver is new enough for torch's CUDA.
    """
    # A torch that was built for the CPU can't train on the GPUs.
    must_have_nvidia(node)
    torch = known(node.software).torch
    if isinstance(torch, Gap):
        raise NotApplicable(f"there is no torch: {torch.reason}")
    if not isinstance(torch.cuda, Gap):
        return
    yield torch_without_cuda.finding(
        severity_for_gpus(case),
        f"{node.host} torch",
        f"this node has NVIDIA GPUs, but torch {torch.version} was built without CUDA",
        _fix(node),
        Evidence("torch", torch.version, torch.location),
        Evidence("torch's CUDA", f"none: {torch.cuda.reason}", torch.location),
    )


def _fix(node: NodeFacts) -> str:
    cuda = "" if isinstance(node.driver, Gap) else known_or(node.driver.cuda, "")
    major = version_tuple(cuda)[:1]
    wheel = next((name for least, name in WHEELS if major >= (least,)), "")
    unknown = "run `nvidia-smi` to see the newest CUDA that the driver runs, and install a torch for it"
    index = f"https://download.pytorch.org/whl/{wheel or 'cu126'}"
    install = f"`pip install --force-reinstall torch --index-url {index}`"
    return f"run {install} (the driver runs CUDA {cuda})" if wheel else f"{unknown}, such as {install}"
