"""A process can't see the GPUs that it must use, or the GPUs of a neighboring process."""

from __future__ import annotations

from preflight.explain.cause import Cause, Sign, by_signs, fixed
from preflight.explain.event import Authority

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
    judge=by_signs(
        "A process{host} can't see a GPU of the job, because the container or CUDA_VISIBLE_DEVICES hides this GPU.",
    ),
    remedy=fixed(
        "Give every container of a host all GPUs of the job (docker run --gpus all), or run all ranks of a host in "
        "one container.",
        "If two containers of a host use different GPUs on purpose, give each its own NCCL_HOSTID (any name). NCCL "
        "then treats them as two hosts.",
        "Compare the output of `nvidia-smi -L` in each container. Then compare CUDA_VISIBLE_DEVICES with "
        "--nproc-per-node.",
    ),
    confirmed_if="the containers of the host list different GPUs",
    confirm_with="preflight probe   # in each container",
)  # fmt: skip
