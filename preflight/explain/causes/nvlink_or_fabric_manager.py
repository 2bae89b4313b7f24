"""NVLink, NVSwitch or the Fabric Manager, which sets them up, failed."""

from __future__ import annotations

from preflight.explain.cause import Cause, Sign, by_signs, fixed, shared
from preflight.explain.event import Authority
from preflight.model.repairs import FABRIC_MANAGER

CAUSE = Cause(
    promise="The GPUs of this machine talk through a switch, and that switch is not set up.",
    signs=(
        Sign("nvlink.802", Authority.HARDWARE, "CUDA waits for the NVSwitch fabric, which is not set up",
             r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady|[Ee]rror:? \(?802\b|"
             r"Cuda failure 802"),
        *shared(Authority.HARDWARE, "nvlink.fm"),
        *shared(Authority.SETUP, "nvlink.nvls", "nvlink.fabric_state"),
        Sign("nvlink.disabled", Authority.HARDWARE,
             "two GPUs are joined by NVLink, and the driver does not let them use it",
             r"P2P is disabled between NVLINK connected GPUs"),
        Sign("nvlink.error", Authority.HARDWARE, "an NVLink or NVSwitch fault",
             r"uncorrectable NVLink error|NVLink error detected|nvidia-nvswitch\d{0,3}: SXid|"
             r"Invalid access of peer GPU memory over nvlink|CUDA_ERROR_CONTAINED|cudaErrorContained|"
             r"NVLink[^\n]{0,40}(?:fatal|inactive|down\b|is DOWN)"),
    ),
    judge=by_signs(
        "The NVLink/NVSwitch fabric{host} is not working: the service that sets it up (Fabric Manager) "
        "is missing, stale or of another version.",
    ),
    remedy=fixed(
        f"Repair: {FABRIC_MANAGER}; `nvidia-smi -q | grep -A3 -i fabric` shows the state of the fabric.",
        "Restart it (sudo systemctl restart nvidia-fabricmanager), reset the GPUs (sudo nvidia-smi -r) "
        "or reboot the node.",
        "In a virtual machine or cloud instance this is the provider's to repair: ask for another node.",
        "Until then, if only NVLS fails: export NCCL_NVLS_ENABLE=0 (slower all-reduce, everything else stays).",
        env=(("NCCL_NVLS_ENABLE", "0"),),
    ),
    needs='fabric state "Completed" and Fabric Manager version equal to the driver version',
    confirm_with="preflight check --gpus LIST",
    outranks=("version_mismatch",),
)  # fmt: skip
