"""Two ranks on one GPU."""

from __future__ import annotations

from preflight.explain.cause import Cause, Sign, by_signs, fixed
from preflight.explain.event import Authority

CAUSE = Cause(
    promise="Every process must have a graphics card of its own; two of them chose the same one.",
    signs=(
        Sign("duplicate.nccl", Authority.SETUP, "two ranks of one job use the same GPU",
             r"Duplicate GPU detected|Multiple [Rr]anks are using the same GPU|"
             r"two ranks use the same device|(?:devices?|device ids?) (?:of|"
             r"for) (?:different )?ranks[^\n]{0,30}same GPU"),
        Sign("duplicate.exclusive", Authority.SETUP, "a GPU admits one process at a time, and another one holds it",
             r"CUDA-capable devices are busy or unavailable|CUDA-capable device\(s\) is/are busy or unavailable|"
             r"cudaErrorDevicesUnavailable"),
    ),
    judge=by_signs("Two ranks use the same GPU{host}, which NCCL refuses."),
    remedy=fixed(
        'Before anything else touches CUDA: torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
        "Start no more processes than there are GPUs: nvidia-smi -L | wc -l against --nproc-per-node; "
        'look for a hard-coded "cuda:0".',
        "Under Ray, Slurm or Docker print CUDA_VISIBLE_DEVICES in every rank: it must differ, or hold "
        "all GPUs of the node.",
    ),
    needs="a different PCI bus id on every rank of a node",
    confirm_with="preflight check",
    outranks=("not_nccl", "remote_peer_died"),
)  # fmt: skip
