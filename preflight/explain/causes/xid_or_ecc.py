"""A GPU has a hardware fault, which software can't cause."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Sign, fill_in, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence
from preflight.model.job_phases import Phase
from preflight.model.nccl_diagnostics import ECC_UNCORRECTED, PREFIX, printed
from preflight.model.xids import XidMeaning, numbers_of

VERDICT = (
    "A GPU failed in hardware ({who}{host}): the driver reports a memory error, a lost PCIe link or another fault."
)
OCCUPIED = (
    "A GPU had no free memory at the first barrier, before any model was loaded ({who}{host}). Another process uses "
    "the memory, or the GPU is faulty."
)


UNKNOWN = (
    "CUDA reported an unknown error ({who}{host}): the GPU or its driver failed, or another program disturbed the GPU."
)


def _any_of(numbers: tuple[int, ...]) -> str:
    return rf"(?:{'|'.join(map(str, numbers))})\b"


# What `check` rejects a GPU for; and what it only warns of, since the driver's recovery action or its counters tell.
PROVEN = (XidMeaning.HARDWARE,)
LIKELY = (XidMeaning.RECOVERY, XidMeaning.REMAPPING)
# Xid 45, of a program that was ended, names the Xid that ended it.
XID = rf"(?:NVRM: Xid \([^)\n]{{1,60}}\): (?:45, [^\n]{{1,160}} caused by previous Xid )?|{PREFIX}Xid )"
IS_PROVEN = re.compile(XID + _any_of(numbers_of(*PROVEN)))
BUS = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{7,16})\)")
LINK = re.compile(XID + _any_of(numbers_of(*PROVEN, *LIKELY, about="NVLink")))


def _link(evidence: LogEvidence) -> tuple[str, ...]:
    """Return advice about a faulty link between GPUs, or () if the driver reports no faulty link."""
    if not any(LINK.search(event.text) for event in evidence.of("xid.xid")):
        return ()
    return (
        "This Xid is about NVLink, and the line names the link. On that host, `nvidia-smi nvlink -e` counts the "
        "errors of the link, and `nvidia-smi nvlink -s` shows links that are down. If the same GPU's link fails "
        "again, the GPU, "
        "its baseboard or a cable is faulty.",
    )


def _which(evidence: LogEvidence) -> tuple[str, ...]:
    """Return the command that shows the error counters of the GPU in the driver's messages.

    Return () if the driver names no GPU.
    """
    buses = (BUS.search(event.text) for event in evidence.of("xid.xid"))
    bus = next((match[1] for match in buses if match), "")
    return (
        (f"nvidia-smi -i {bus} -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT shows the counters of that GPU.",) if bus else ()
    )


def judge(evidence: LogEvidence, own_events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a GPU is faulty, or None if nothing shows a fault.

    A fault is shown by the driver's errors in `own_events`, or by GPU memory that was full before the job began.
    """
    # The conclusion has low confidence if the only evidence is that GPU memory was full.
    if own_events and all(event.sign == "xid.999" for event in own_events):
        because = "CUDA names no reason, but the kernel log may show it"
        return Claim(Authority.UNEXPLAINED_DEATH, own_events, Confidence.LOW, because, fill_in(UNKNOWN, own_events))
    if events := own_events:
        is_proven = any(event.sign != "xid.xid" or IS_PROVEN.search(event.text) for event in events)
        because = "only a hardware fault causes these lines"
        if not is_proven:
            because = (
                "the driver reports a fault that may not need a repair; the GPU's recovery action or error "
                "counters decide"
            )
        confidence = Confidence.HIGH if is_proven else Confidence.MEDIUM
        return Claim(events[0].authority, events, confidence, because, fill_in(VERDICT, events))
    full = evidence.of("gpu_oom.torch")
    is_bare = bool(full) and all(event.match == "CUDA error: out of memory" for event in full)
    if (
        not is_bare
        or not evidence.has("context.barrier_frame")
        or evidence.phase(Phase.TRAINING, Phase.SAVING, Phase.EVALUATING)
    ):
        return None
    because = "the program had allocated nothing, but the first barrier found no memory"
    return Claim(Authority.OWN_ERROR, full, Confidence.LOW, because, fill_in(OCCUPIED, full))


CAUSE = Cause(
    promise="The GPU or its slot failed. No setting of the program repairs this.",
    signs=(
        Sign("xid.ecc", Authority.HARDWARE, "the GPU memory returned data that it could not correct",
             r"uncorrectable ECC error|cudaErrorECCUncorrectable|double[- ]bit ECC|DBE \(double bit|Uncorrectable ECC|"
             r"row remapping failure"),
        Sign("xid.diagnosed", Authority.HARDWARE, "NCCL's own diagnostics found memory errors that were not corrected",
             printed(ECC_UNCORRECTED)),
        Sign("xid.xid", Authority.HARDWARE, "the driver reports a fault of the GPU (Xid)",
             XID + _any_of(numbers_of(*PROVEN, *LIKELY))),
        Sign("xid.bus", Authority.HARDWARE, "the GPU disappeared from the PCIe bus",
             r"AER: (?:Multiple )?Uncorrect(?:ed|able) \(Fatal\)|fallen off the bus"),
        Sign("xid.999", Authority.UNEXPLAINED_DEATH,
             "CUDA reports an unknown error; a fault of the GPU can cause this",
             r"Cuda failure (?:999|'unknown error')|CUDA error: unknown error|cudaErrorUnknown"),
        Sign("xid.thc", Authority.HARDWARE, "the GPU memory returned data that it could not correct",
             r"THCudaCheck FAIL [^\n]{0,120}error=39"),
    ),
    judge=judge,
    remedy=fixed(
        "Take that GPU or node out of the job now, then read the driver's messages: sudo dmesg -T "
        '| grep -i -e xid -e "fallen off" -e AER',
        "Read its error counters: nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT",
        "Reset it (sudo nvidia-smi --gpu-reset -i N) or reboot the node. If a row-remap failure or Xid 79 returns, "
        "replace the GPU.",
        then=lambda evidence: (*_which(evidence), *_link(evidence)),
    ),
    infers=True,
    confirmed_if="the kernel log has an Xid of that GPU, or one of its ECC counters rises",
    confirm_with="preflight check --accept --profile burn",
    outranks=("cuda_illegal_address", "cuda_oom_masked", "driver_gpu_lost", "not_nccl", "p2p_broken"),
)  # fmt: skip
