"""Memory of a GPU's own NUMA node that is slower than another node's: the firmware tells the kernel the wrong node."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.run.below_nccl import by_gpu, gpu_called, hardware_of, must_have_speeds
from preflight.model.finding import Blame, Evidence, Finding, Severity

NEAR_OVER_FAR = 0.8  # far memory may be as fast as near, but not faster


def judge(case: Case) -> Iterator[Finding]:
    """Yield a WARN for each GPU to which memory of another NUMA node is clearly faster than that of its own."""
    hardware = hardware_of(case)
    if hardware is None:
        return
    told: dict[int, tuple[str, float, float]] = {}
    for direction in ("h2d", "d2h"):
        copies = [(test.gpu, c) for test in hardware.gpus for c in test.copies if c.direction == direction]
        near = by_gpu((gpu, copy.gb_s) for gpu, copy in copies if copy.is_near is True)
        far = by_gpu((gpu, copy.gb_s) for gpu, copy in copies if copy.is_near is False)
        for gpu in near:
            if gpu in far and near[gpu] < NEAR_OVER_FAR * far[gpu]:
                told.setdefault(gpu, (direction, near[gpu], far[gpu]))
    for gpu, (direction, near_gb_s, far_gb_s) in told.items():
        yield Finding(
            check=CHECK.name,
            blame=CHECK.blame,
            severity=Severity.WARN,
            subject=gpu_called(case, gpu),
            problem=f"memory of its own NUMA node is slower ({near_gb_s:.1f} GB/s) than that of another "
            f"({far_gb_s:.1f} GB/s): launchers that bind to the near node bind to the wrong one",
            fix="compare `nvidia-smi topo -m` with the board's manual; update the firmware, or bind ranks by hand "
            "(`numactl --cpunodebind`)",
            evidence=(Evidence(direction, f"near {near_gb_s:.1f}, far {far_gb_s:.1f} GB/s", "pinned memory"),),
        )
    must_have_speeds(hardware)


CHECK = RunCheck(
    name="numa-copy",
    promise="memory of a GPU's own NUMA node is as fast as any other's",
    blame=Blame.HOST,
    reads=("hardware",),
    blind_to="nodes whose CPUs this process may not use, and GPUs whose node is not known",
    judge=judge,
)
