"""NVLink, NVSwitch and the Fabric Manager that sets them up."""

from __future__ import annotations

from preflight.explain.cause import Cause, Sign, by_signs, fixed
from preflight.explain.event import Authority

CAUSE = Cause(
    promise="The GPUs of this machine talk through a switch, and that switch is not set up.",
    signs=(
        Sign("nvlink.802", Authority.HARDWARE, "CUDA waits for the NVSwitch fabric, which is not set up",
             r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady|[Ee]rror:? \(?802\b|"
             r"Cuda failure 802"),
        Sign("nvlink.nvls", Authority.SETUP, "the NVSwitch refused memory for in-switch reductions (NVLS)",
             r"nvls\.cc:\d{1,5}[^\n]{0,40} NCCL WARN Cuda failure|Failed to bind NVLink SHARP|"
             r"NVLS[^\n]{0,40}Multicast (?:bind|memory)[^\n]{0,40}(?:fail|error)|[Mm]ulticast (?:bind|"
             r"object)[^\n]{0,40}[Ff]ail|"
             r"NVLink SHARP[^\n]{0,60}(?:[Ff]ail|error)|\bnvls\b[^\n]{0,40}(?:[Ff]ailed|error)|"
             r"cuMulticast(?:Create|BindMem|BindAddr|AddDevice)[^\n]{0,40}(?:fail|error)"),
        Sign("nvlink.disabled", Authority.HARDWARE,
             "two GPUs are joined by NVLink, and the driver does not let them use it",
             r"P2P is disabled between NVLINK connected GPUs"),
        Sign("nvlink.error", Authority.HARDWARE, "an NVLink or NVSwitch fault",
             r"uncorrectable NVLink error|NVLink error detected|nvidia-nvswitch\d{0,3}: SXid|"
             r"Invalid access of peer GPU memory over nvlink|CUDA_ERROR_CONTAINED|cudaErrorContained|"
             r"NVLink[^\n]{0,40}(?:fatal|inactive|down\b|is DOWN)"),
        Sign("nvlink.fm", Authority.HARDWARE, "the Fabric Manager is not doing its work",
             r"[Ff]abric ?[Mm]anager[^\n]{0,60}(?:not running|never|failed|fail to|dead|inactive|mismatch|"
             r"not initialized)|nvidia-fabricmanager[^\n]{0,80}(?:[Ff]ailed|dead|not running|mismatch)|"
             r"driver interface version [\d.]{1,20} don't match"),
        Sign("nvlink.fabric_state", Authority.SETUP, "the NVLink fabric has not come up",
             r"[Ff]abric [Ss]tate[^\n]{0,20}(?:[Ii]n [Pp]rogress|not [Cc]omplete)|MNNVL [^\n]{0,60}not working|"
             r"IMEX[^\n]{0,60}(?:[Ff]ailed|not (?:ready|initialized|running|available|configured)|UNAVAILABLE|"
             r"DEGRADED|version mismatch)|"
             r"nvidia-imex[^\n]{0,60}(?:[Ff]ailed|dead|inactive|not running|error)|"
             r"imex-channels[^\n]{0,80}(?:No such|denied|not)|"
             r"cuMemCreate[^\n]{0,120}operation not permitted|MNNVL[^\n]{0,80}(?:[Ff]ail|not (?:supported|available|"
             r"enabled))|"
             r"cuMem(?:ExportTo|ImportFrom)ShareableHandle[^\n]{0,60}(?:[Ff]ail|error)|"
             r"fabric handle[^\n]{0,40}(?:[Ff]ail|error)"),
    ),
    judge=by_signs(
        "The NVLink/NVSwitch fabric{host} is not working: the service that sets it up (Fabric Manager) "
        "is missing, stale or of another version.",
    ),
    remedy=fixed(
        "See whether it runs and whether its version equals the driver's: systemctl status "
        "nvidia-fabricmanager; nvidia-smi -q | grep -A3 -i fabric",
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
