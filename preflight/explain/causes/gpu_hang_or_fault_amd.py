"""An AMD GPU hung, faulted or was reset, according to the amdgpu driver or ROCm's runtime."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Remedy, Sign, fill_in
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

HANG = "An AMD GPU hung or reported a hardware error ({who}{host}). The driver reset the GPU, and the job on it died."
FAULT = "A kernel on an AMD GPU accessed memory outside its own ({who}{host}), or the GPU is faulty."


def judge(_evidence: LogEvidence, events: tuple[Event, ...]) -> Claim:
    """Return the conclusion that an AMD GPU had a memory fault, hung or was reset, based on the first event."""
    # The program may have caused a memory fault. A hang or a hardware error comes from the node.
    is_fault = events[0].sign == "amd.fault"
    verdict = fill_in(FAULT if is_fault else HANG, events)
    because = f"{'' if is_fault else 'the driver or '}ROCm's runtime reports the error"
    return Claim(events[0].authority, events, Confidence.HIGH, because, verdict)


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for an AMD GPU.

    The first step examines the program after a memory fault, and the node after a hang or a reset.
    """
    driver = (
        "Read the driver's messages on that host: sudo dmesg -T | grep -i -e amdgpu -e ras. For error counters, run "
        "`amd-smi` or `rocm-smi --showrasinfo all`."
    )
    if claim.events[0].sign == "amd.fault":
        return Remedy(
            "Run once with AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1. The traceback then names the operation, "
            "but the job is slower.",
            "Common reasons are a kernel that does not support this GPU (attention, experts, quantization), an index "
            "out of range, or an image whose ROCm release differs from the host driver's.",
            driver,
        )
    return Remedy(
        driver,
        "Take the node out of the job, install driver, firmware and ROCm of one release, and reboot. If only that "
        "GPU fails again, replace it.",
        "If every node fails at the same place of the program, a kernel never ends. AMD_SERIALIZE_KERNEL=3 names the "
        "kernel.",
    )


CAUSE = Cause(
    promise="An AMD GPU stopped answering, or a program on it accessed memory outside its own.",
    signs=(
        Sign("amd.hang", Authority.HARDWARE, "an AMD GPU hung",
             r"HW Exception by GPU node|reason :? ?GPU Hang|"
             r"amdgpu[^\n]{0,80}(?:GPU reset begin|GPU reset\(|uncorrectable hardware error|GPU hang|device lost|"
             r"ring \S{1,20} timeout|RAS[^\n]{0,20}uncorrectable|failed to (?:suspend|reset|evict)|GPU is lost|"
             r"GPU mode\d reset|Fatal error during GPU init)|ERREVENT_ATHUB_INTERRUPT|"
             r"HSA_STATUS_ERROR_(?:OUT_OF_REGISTERS|INVALID_PACKET|HARDWARE)"),
        Sign("amd.fault", Authority.OWN_ERROR, "a kernel on an AMD GPU accessed memory outside its own",
             r"Memory access fault by GPU node|GPU core dump(?:ed| failed)|"
             r"HSA_STATUS_ERROR_(?:MEMORY_\w{1,20}|EXCEPTION|ILLEGAL_INSTRUCTION|MEMORY_APERTURE_VIOLATION)|"
             r"Queue (?:at )?0x[0-9a-f]{1,16} (?:inactivated|aborting)|Queue error - HSA|"
             r"HIP error: (?:an illegal memory access|unspecified launch failure|device-side assert|misaligned)|"
             r"hipError(?:IllegalAddress|LaunchFailure|Assert)\b|amdgpu[^\n]{0,60}page fault"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="dmesg has amdgpu's messages of that time, and the job runs on another node",
    confirm_with="sudo dmesg -T | grep -i amdgpu   # on that host",
    outranks=("cuda_illegal_address", "host_oom_killed", "p2p_broken", "version_mismatch"),
)  # fmt: skip
