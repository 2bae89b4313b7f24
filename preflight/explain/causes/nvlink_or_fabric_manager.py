"""NVLink, NVSwitch or the Fabric Manager failed."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, by_nccl, by_signs, fixed, shared
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.nccl_diagnostics import LINK_DIFFERS, SXID_FATAL, printed
from preflight.model.repairs import FABRIC_MANAGER

VERDICT = (
    "The NVLink/NVSwitch fabric{host} does not work. The Fabric Manager, which sets the fabric up, is missing, stale "
    "or of the wrong version."
)
DIFFERS = "The NVLinks of the GPUs differ. NCCL's own check says: {said}."


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that NVLink or the Fabric Manager failed.

    If only NCCL's diagnostics call a link unusual, return None unless a rank timed out.
    """
    if events[0].authority is Authority.SILENCE:
        return by_nccl(evidence, events, DIFFERS)
    return by_signs(VERDICT)(evidence, events)


CAUSE = Cause(
    promise="The GPUs of this machine are connected by a switch (NVSwitch), and the switch is not set up.",
    signs=(
        Sign("nvlink.802", Authority.HARDWARE, "CUDA waits for the NVSwitch fabric, which is not set up",
             r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady|[Ee]rror:? \(?802\b|"
             r"Cuda failure 802"),
        *shared(Authority.HARDWARE, "nvlink.fm"),
        *shared(Authority.SETUP, "nvlink.nvls", "nvlink.fabric_state"),
        Sign("nvlink.sxid", Authority.HARDWARE, "NCCL's own diagnostics found a fatal fault of an NVSwitch",
             printed(SXID_FATAL)),
        Sign("nvlink.diagnosed", Authority.SILENCE, "NCCL's own diagnostics report unusual NVLinks",
             printed(LINK_DIFFERS)),
        Sign("nvlink.disabled", Authority.HARDWARE,
             "NVLink joins two GPUs, but the driver does not let them use it",
             r"P2P is disabled between NVLINK connected GPUs"),
        Sign("nvlink.error", Authority.HARDWARE, "an NVLink or NVSwitch fault",
             r"uncorrectable NVLink error|NVLink error detected|nvidia-nvswitch\d{0,3}: SXid|"
             r"Invalid access of peer GPU memory over nvlink|CUDA_ERROR_CONTAINED|cudaErrorContained|"
             r"NVLink[^\n]{0,40}(?:fatal|inactive|down\b|is DOWN)"),
    ),
    judge=judge,
    remedy=fixed(
        f"Repair: {FABRIC_MANAGER}; `nvidia-smi -q | grep -A3 -i fabric` shows the state of the fabric.",
        "Restart it (sudo systemctl restart nvidia-fabricmanager), reset the GPUs (sudo nvidia-smi -r) "
        "or reboot the node.",
        "In a virtual machine or cloud instance, ask for another node, because only the provider can repair this "
        "fault.",
        "If only NVLS fails, export NCCL_NVLS_ENABLE=0 until the repair (only all-reduce becomes slower).",
        env=(("NCCL_NVLS_ENABLE", "0"),),
    ),
    confirmed_if='the state of the fabric is not "Completed", or Fabric Manager and driver differ in version',
    confirm_with="preflight check --gpus LIST",
    outranks=("version_mismatch",),
)  # fmt: skip
