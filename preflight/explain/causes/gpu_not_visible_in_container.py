"""A process can't see the GPUs that the process must use, or can't see the GPUs of a neighboring process."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign, Variant, fill_in, variant_in
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

DRIVER = re.compile(r"[Dd]river/library version mismatch")
COUNT = (
    '`python -c "import torch; print(torch.cuda.device_count())"`, run as the job is (in the container, with srun), '
)
PASS_IN = (
    "Give the job all its GPUs: docker run --gpus all; Slurm: --gres=gpu:N for each node; Kubernetes: "
    "resources.limits nvidia.com/gpu: N."
)
ANSWERS = (
    Variant(
        r"invalid device ordinal|ErrorInvalidDevice",
        "The GPU number that {who}{host} asked for does not exist. Usually a node started more processes than it shows "
        "GPUs.",
        (COUNT + "must print at least the number of processes per node (--nproc-per-node).",
         "For a serving engine, this number is --tensor-parallel-size divided by the number of nodes.", PASS_IN,
         "If the program sets CUDA_VISIBLE_DEVICES itself, it must count GPUs from 0 within this list."),
    ),
    Variant(
        r"BusId|real path of",
        "A process{host} can't see a GPU of the job, because the container or CUDA_VISIBLE_DEVICES hides this GPU.",
        ("Give every container of a host all GPUs of the job (docker run --gpus all), or run all ranks of a host in "
         "one container.",
         "If two containers of a host use different GPUs on purpose, give each its own NCCL_HOSTID (any name). NCCL "
         "then treats them as two hosts.",
         "Compare the output of `nvidia-smi -L` in each container. Then compare CUDA_VISIBLE_DEVICES with "
         "--nproc-per-node."),
    ),
    Variant(
        r"requirement error|unsatisfied condition",
        "The image needs a newer NVIDIA driver than the host has ({who}{host}).",
        ("The line names the release that the image needs. `nvidia-smi` prints the driver of the host: update the "
         "driver, or use an image for this driver.",),
    ),
    Variant(
        r"NVML: (?:Unknown Error|Insufficient Permissions)",
        "No GPU is visible to {who}{host} any longer: the container lost its GPU devices.",
        ("Start the container again. `systemctl daemon-reload` on the host takes the devices from running containers.",
         "To prevent this, pass the device files too (docker run --device /dev/nvidia0 ...), or let Docker use the "
         "cgroupfs driver."),
    ),
    Variant(
        r"HIP|ROCm|/dev/kfd|hipError",
        "No GPU is visible to {who}{host}: the container or the scheduler hides them, or this user may not open them.",
        ("`rocm-smi` must list the GPUs where the job runs.",
         "Pass the devices in: docker run --device /dev/kfd --device /dev/dri --group-add video --group-add render."),
    ),
    Variant(
        r"NPU",
        "No NPU is visible to {who}{host}: the container or ASCEND_RT_VISIBLE_DEVICES hides them.",
        ("`npu-smi info` must list the NPUs where the job runs. Pass the devices in: docker run --device "
         "/dev/davinci0 --device /dev/davinci_manager.",),
    ),
    Variant(
        "",
        "No GPU is visible to {who}{host}: the container, the scheduler or CUDA_VISIBLE_DEVICES hides them, or the "
        "driver is not loaded.",
        ("`nvidia-smi -L` must list the GPUs where the job runs. If it fails on the host too, the driver is not "
         "loaded: sudo dmesg -T | grep -i nvrm.", PASS_IN,
         "If nvidia-smi lists GPUs and torch sees none, CUDA_VISIBLE_DEVICES is empty or wrong, or torch is built "
         "without CUDA (torch.version.cuda is None)."),
    ),
)  # fmt: skip


def judge(_evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a process does not see the GPUs that the process must use.

    Return None if the first line says that the driver was replaced.
    """
    # After a driver replacement, the versions are the cause.
    if DRIVER.search(events[0].text):
        return None
    verdict = fill_in(_answer(events).verdict, events)
    return Claim(events[0].authority, events, Confidence.HIGH, "the log states the cause", verdict)


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the steps for the first error: a GPU number that does not exist, a hidden GPU, or no GPU."""
    return Remedy(*_answer(claim.events).steps)


def _answer(events: tuple[Event, ...]) -> Variant:
    return variant_in(ANSWERS, events[0].text)


CAUSE = Cause(
    promise="A container shows only some of the machine's GPUs. Here a GPU that the job needs is hidden.",
    signs=(
        Sign("visible.nvml", Authority.SETUP, "a rank on the same host uses a GPU that is hidden from this process",
             r"nvmlDeviceGetHandleByPciBusId[^\n]{0,10} failed"),
        Sign("visible.topology", Authority.SETUP,
             "the container or virtual machine does not show the GPU's place on the PCI bus",
             r"NCCL WARN Could not find real path of /sys/class/pci_bus"),
        Sign("visible.none", Authority.SETUP, "the process sees no GPU at all",
             r"No (?:CUDA|HIP|XPU) GPUs are available|No visible GPU devices|no ROCm-capable device|hipErrorNoDevice|"
             r"No NPU|NPU device[^\n]{0,30}not (?:found|available)|[Nn]o (?:accelerator|GPU)s? (?:were |"
             r"was )?(?:found|detected) on|"
             r"Unable to open /dev/kfd|no CUDA-capable device is detected|cudaErrorNoDevice|"
             r"could not select device driver|CUDA-capable device\(s\) not found|Found no NVIDIA driver on your system|"
             r"only supported with GPUs, no GPUs found|CUDA unknown error - this may be due to"),
        Sign("visible.ordinal", Authority.SETUP, "the process asks for a GPU number that it does not have",
             r"invalid device ordinal|(?:cuda|hip)ErrorInvalidDevice\b"),
        Sign("visible.nvidia_container", Authority.SETUP, "the container was given no GPU, or lost it",
             r"nvidia-container-cli: [^\n]{0,80}error|"
             r"Failed to initialize NVML: (?:Unknown Error|Driver Not Loaded|Insufficient Permissions)"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="the containers of the host list different GPUs",
    confirm_with="preflight probe   # in each container",
)  # fmt: skip
