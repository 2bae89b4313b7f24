from __future__ import annotations

from collections.abc import Iterator

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.gpu_test_results import (
    by_gpu,
    gpu_called,
    gpu_laggards,
    gpu_results_of,
    must_have_run,
    must_have_speeds,
)
from preflight.judge.seen_again import part_of_gpu
from preflight.model.facts import Gap, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gpu_test import Hardware, UnderLoad

NEAR_OVER_FAR = 0.8  # far memory may be as fast as near, but not faster


@run_check("numa-copy", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("hardware",))
def numa_copy(case: Case) -> Findings:
    """Memory of a GPU's own NUMA node is as fast as any other's.

    Where it is slower, the firmware tells the kernel the wrong node. Yields a WARN for each GPU to which memory of
    another NUMA node is clearly faster than that of its own.

    Can't see: nodes whose CPUs this process may not use, and GPUs whose node is not known.
    """
    hardware = gpu_results_of(case)
    slower: dict[int, tuple[str, float, float]] = {}
    for direction in ("h2d", "d2h"):
        copies = [(test.gpu, c) for test in hardware.gpus for c in test.copies if c.direction == direction]
        near = by_gpu((gpu, copy.gb_s) for gpu, copy in copies if copy.is_near is True)
        far = by_gpu((gpu, copy.gb_s) for gpu, copy in copies if copy.is_near is False)
        for gpu in near:
            if gpu in far and near[gpu] < NEAR_OVER_FAR * far[gpu]:
                slower.setdefault(gpu, (direction, near[gpu], far[gpu]))
    for gpu, (direction, near_gb_s, far_gb_s) in slower.items():
        yield numa_copy.finding(
            Severity.WARN,
            gpu_called(case, gpu),
            f"memory of its own NUMA node is slower ({near_gb_s:.1f} GB/s) than that of another "
            f"({far_gb_s:.1f} GB/s): launchers that bind to the near node bind to the wrong one",
            "compare `nvidia-smi topo -m` with the board's manual; update the firmware, or bind ranks by hand "
            "(`numactl --cpunodebind`)",
            Evidence(direction, f"near {near_gb_s:.1f}, far {far_gb_s:.1f} GB/s", "pinned memory"),
        )
    must_have_speeds(hardware)
    must_have_run(hardware.gpus, hardware)
    if all(copy.is_near is not False for test in hardware.gpus for copy in test.copies):
        raise NotApplicable("no memory of another NUMA node was copied from")


# Healthy copies of pinned memory reach 76 to 90% of the link (16x gen 3: 12 of 15.75, gen 5: 55 of 63 GB/s).
WARN_BELOW = 0.60
FAIL_BELOW = 0.30
SIBLING_WARN_BELOW = 0.80


@run_check("pcie-copy-slow", blame=Blame.HOST, unseen=Unseen.ACCEPTANCE, reads=("hardware", "nodes"))
def pcie_copy_slow(case: Case) -> Findings:
    """Copies between the host and each chosen GPU reach what its link carries and its siblings do.

    A GPU whose copies from and to the host are far below its link starves on data and checkpoints. Yields a finding for
    each GPU and direction that is far below the link's rate or the siblings' copies.

    Can't see: links that only fill up when several GPUs copy at once.
    """
    hardware = gpu_results_of(case)
    limits = dict(hardware.host_limits_gb_s)
    for direction in ("h2d", "d2h"):
        speeds = best_copies(hardware, direction)
        below = [gpu for gpu, speed in speeds.items() if gpu in limits and speed < WARN_BELOW * limits[gpu]]
        lagging = [each for each in gpu_laggards(case, speeds, SIBLING_WARN_BELOW) if each[0] not in below]
        slow = [(gpu, "its link carries", limits[gpu]) for gpu in below]
        slow += [(gpu, "its siblings reach", middle) for gpu, _, middle in lagging]
        for gpu, who, usual in slow:
            is_failing = gpu in below and speeds[gpu] < FAIL_BELOW * usual
            words, speed = "from the host" if direction == "h2d" else "to the host", speeds[gpu]
            yield pcie_copy_slow.finding(
                Severity.FAIL if is_failing else Severity.WARN,
                gpu_called(case, gpu),
                f"copies {words} at {speed:.1f} GB/s; {who} {usual:.1f} GB/s ({speed / usual:.0%})",
                "`nvidia-smi -q -d PCIE` while it copies: fewer lanes or an older generation than the slot gives mean "
                "reseating the card or riser; else the slot's switch, or the BIOS' payload and relaxed ordering "
                "settings",
                Evidence(f"{direction} copy", f"{speed:.1f} GB/s", "pinned memory"),
                *_link(hardware, gpu),
                parts=part_of_gpu(case.nodes[0], gpu),
            )
    must_have_speeds(hardware)
    must_have_run(hardware.gpus, hardware)


def best_copies(hardware: Hardware, direction: str) -> dict[int, float]:
    """Return each GPU's speed with memory of its own NUMA node, or of the only NUMA node that was tried."""
    copies = ((test.gpu, copy) for test in hardware.gpus for copy in test.copies if copy.direction == direction)
    return by_gpu((gpu, copy.gb_s) for gpu, copy in copies if copy.is_near is not False)


def _link(hardware: Hardware, gpu: int) -> Iterator[Evidence]:
    load = next((test.copying for test in hardware.gpus if test.gpu == gpu), None)
    if isinstance(load, UnderLoad) and not isinstance(load.pcie_gen_max, Gap):
        link = f"generation {load.pcie_gen_max}, x{known_or(load.pcie_width_min, '?')}"
        yield Evidence("link while copying", link, "NVML while it copied")
