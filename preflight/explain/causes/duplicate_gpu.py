"""Two ranks use one GPU."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, by_signs, fill_in, fixed, shared
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

BUSY = (
    "A GPU that {who} asked for is busy or unavailable{host}. Another process holds it, or an earlier fault left it "
    "unusable."
)
TWICE = by_signs("Two ranks use the same GPU{host}; NCCL refuses this.")


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that two ranks use one GPU.

    The confidence is high if NCCL reports the shared GPU, and medium if CUDA only reports that the GPU is busy.
    """
    # A GPU can also be busy after a fault.
    if any(event.sign == "duplicate.nccl" for event in events):
        return TWICE(evidence, tuple(event for event in events if event.sign == "duplicate.nccl"))
    because = "CUDA reports that it can't use the GPU, but not which process uses the GPU"
    return Claim(events[0].authority, events, Confidence.MEDIUM, because, fill_in(BUSY, events))


CAUSE = Cause(
    promise="Every process needs its own GPU. Here two processes chose the same GPU.",
    signs=(
        *shared(Authority.SETUP, "duplicate.nccl"),
        Sign("duplicate.exclusive", Authority.SETUP, "a GPU admits one process at a time, and another process uses "
        "the GPU",
             r"CUDA-capable devices are busy or unavailable|CUDA-capable device\(s\) is/are busy or unavailable|"
             r"cudaErrorDevicesUnavailable"),
    ),
    judge=judge,
    remedy=fixed(
        'Before anything else touches CUDA: torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
        "Run `nvidia-smi` to see which process uses the GPU, and end leftover processes of an earlier run. The "
        "compute mode Exclusive_Process admits only one process. If no process uses the GPU, run `dmesg | grep -i "
        "xid`, then reset the GPU.",
        'Start at most one process per GPU (`nvidia-smi -L | wc -l` counts the GPUs). Look for a hard-coded "cuda:0".',
        "With Ray, Slurm or Docker, print CUDA_VISIBLE_DEVICES in every rank. The values must differ, or list all "
        "GPUs of the node.",
    ),
    confirmed_if="two ranks of a node have the same PCI bus ID",
    confirm_with="preflight check",
    outranks=("not_nccl", "remote_peer_died"),
)  # fmt: skip
