"""Faults of the GPU itself: nothing in software produces these."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, fixed, said
from preflight.explain.event import Authority
from preflight.explain.phases import Phase
from preflight.explain.seen import Seen
from preflight.model.explanation import Confidence

ID = "xid_or_ecc"
VERDICT = "A GPU failed in hardware ({who}{host}): memory error, PCIe loss or another fault that the driver reports."
OCCUPIED = (
    "A GPU had no memory at the very first barrier, before any model was on it ({who}{host}): "
    "another process holds it, or it "
    "is faulty."
)


def judge(seen: Seen) -> Claim | None:
    """Claim what the driver says; else a GPU that is full before anything was put on it."""
    if events := seen.best(ID):
        because = "nothing in software prints these lines"
        return Claim(events[0].authority, events, Confidence.HIGH, because, said(VERDICT, events))
    full = seen.of("gpu_oom.torch")
    is_bare = bool(full) and all(event.match == "CUDA error: out of memory" for event in full)
    if (
        not is_bare
        or not seen.has("context.barrier_frame")
        or seen.phase(Phase.TRAINING, Phase.SAVING, Phase.EVALUATING)
    ):
        return None
    because = "the program asked for nothing: the first barrier found no memory"
    return Claim(Authority.OWN_ERROR, full, Confidence.LOW, because, said(OCCUPIED, full))


CAUSE = Cause(
    id="xid_or_ecc",
    promise="The graphics card itself, or its slot, failed. No setting of the program can cure it.",
    signs=(
        Sign(
            "xid.ecc",
            r"uncorrectable ECC error|cudaErrorECCUncorrectable|double[- ]bit ECC|DBE \(double bit|"
            r"Uncorrectable ECC|row remapping failure",
            Authority.HARDWARE,
            "the GPU memory returned data that it could not correct",
        ),
        Sign(
            "xid.xid",
            r"NVRM: Xid \([^)\n]{1,60}\): (?:4[68]|6[1-4]|7[49]|8[0-9]|9[2-5]|1[0-7]\d|5[6-9])\b",
            Authority.HARDWARE,
            "the driver reports a fault of the GPU (Xid)",
        ),
        Sign(
            "xid.bus",
            r"AER: (?:Multiple )?Uncorrect(?:ed|able) \(Fatal\)|fallen off the bus|GPU is lost|"
            r"Unable to determine the device handle|GPU has been lost",
            Authority.HARDWARE,
            "the GPU vanished from the PCIe bus",
        ),
        Sign(
            "xid.999",
            r"Cuda failure (?:999|'unknown error')|CUDA error: unknown error|cudaErrorUnknown",
            Authority.HARDWARE,
            "CUDA fails for a reason that it does not know, as after a fault of the GPU",
        ),
        Sign(
            "xid.thc",
            r"THCudaCheck FAIL [^\n]{0,120}error=39",
            Authority.HARDWARE,
            "the GPU memory returned data that it could not correct",
        ),
        Sign(
            "xid.thermal",
            r"GPU (?:requires reset|needs to be reset)|NVRM: GPU at PCI:[^\n]{0,80}(?:RmInitAdapter failed|"
            r"reset required)|RmInitAdapter failed",
            Authority.HARDWARE,
            "the driver can no longer use the GPU",
        ),
    ),
    judge=judge,
    remedy=fixed(
        "Take that GPU or node out of the job now, then read the driver's account of it: sudo dmesg -T "
        '| grep -i -e xid -e "fallen off" -e AER',
        "Look at its error counters: nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT",
        "Reset it (sudo nvidia-smi --gpu-reset -i N) or reboot the node; a row-remap failure or Xid 79 "
        "that returns means replacement.",
    ),
    needs="an Xid or ECC counter of that GPU that rises",
    confirm_with="preflight check --accept --profile burn",
    outranks=frozenset({"cuda_illegal_address", "cuda_oom_masked"}),
)
