"""The driver can no longer reach a GPU, or the driver does not run."""

from __future__ import annotations

from preflight.explain.cause import Cause, Sign, by_signs, fixed
from preflight.explain.event import Authority

CAUSE = Cause(
    promise="The GPU or its driver no longer answers. No setting of the program repairs this.",
    signs=(
        Sign("lost.gpu", Authority.HARDWARE, "the driver lost a GPU",
             r"Unable to determine the device handle|GPU is lost|GPU has been lost|NVML_ERROR_GPU_IS_LOST|"
             r"GPU-?\d{0,3}[^\n]{0,20} (?:is )?missing from nvidia-smi|nvmlInit[^\n]{0,40}GPU is lost"),
        Sign("lost.driver", Authority.HARDWARE, "the driver does not run, or can't initialize the GPU",
             r"couldn't communicate with the NVIDIA driver|RmInitAdapter failed|rm_init_adapter failed|"
             r"(?:amdgpu|nvidia|xe|habanalabs) [\da-f:.]{7,12}: Unable to change power state from \w{1,10} to D0|"
             r"NVRM: GPU at PCI:[^\n]{0,80}reset required|nvidia-modprobe: [^\n]{0,60}(?:failed|ERROR)|"
             r"NVML: Driver Not Loaded|UR_RESULT_ERROR_DEVICE_LOST|"
             r"CUDA_ERROR_DEVICE_UNAVAILABLE|GPU (?:requires reset|needs to be reset)"),
    ),
    judge=by_signs("The driver lost a GPU or can't reach a GPU{host} ({who}). The GPU, its slot or a stuck driver is "
    "at fault."),
    remedy=fixed(
        "Take the node out of the job now, then read the driver's messages: sudo dmesg -T | grep -i -e nvrm -e xid "
        "-e AER",
        "Compare `nvidia-smi -L` with the number of installed GPUs. Reset the GPU (sudo nvidia-smi --gpu-reset -i "
        "N) or reboot the node.",
        "If the GPU is lost again, reseat or replace the card. Earlier PCIe errors (AER) show that the slot, the "
        "riser or the power is at fault.",
    ),
    confirmed_if="nvidia-smi -L shows fewer GPUs than the machine has, or the kernel log has an Xid 79",
    confirm_with="preflight check --accept --profile burn   # after the repair",
    outranks=("cuda_illegal_address", "not_nccl"),
)  # fmt: skip
