from __future__ import annotations

from collections.abc import Iterator

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.gpu_test_results import (
    SIGMAS,
    by_gpu,
    gpu_called,
    gpu_laggards,
    gpu_results_of,
    must_have_run,
    must_have_speeds,
)
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import Gap, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gpu_test import Hardware, UnderLoad
from preflight.model.parts import part_of_gpu
from preflight.model.units import rate_text

NEAR_OVER_FAR = Bound(
    0.8, "of the copy speed of far memory; slower near memory is a WARN",
    "memory of the GPU's own NUMA node should be at least as fast as far memory",
    JUDGMENT,
    "too high: noise of one copy causes a warning; too low: a wrong NUMA table passes",
)  # fmt: skip


@run_check("numa-copy", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("hardware",), bounds=(NEAR_OVER_FAR,))
def numa_copy(case: Case) -> Findings:
    """For every GPU, memory of its own NUMA node is as fast as memory of any other node.

    Yields a WARN for each GPU that copies clearly faster with memory of another NUMA node.

    Can't see: NUMA nodes whose CPUs this process may not use, and GPUs whose NUMA node is not known.
    """
    # If the memory of its own NUMA node is slower, the firmware reports the wrong NUMA node to the kernel.
    hardware = gpu_results_of(case)
    slower: dict[int, tuple[str, float, float]] = {}
    for direction in ("h2d", "d2h"):
        copies = [(test.gpu, c) for test in hardware.gpus for c in test.copies if c.direction == direction]
        near = by_gpu((gpu, copy.gb_s) for gpu, copy in copies if copy.is_near is True)
        far = by_gpu((gpu, copy.gb_s) for gpu, copy in copies if copy.is_near is False)
        for gpu in near:
            if gpu in far and near[gpu] < NEAR_OVER_FAR.value * far[gpu]:
                slower.setdefault(gpu, (direction, near[gpu], far[gpu]))
    for gpu, (direction, near_gb_s, far_gb_s) in slower.items():
        yield numa_copy.finding(
            Severity.WARN,
            gpu_called(case, gpu),
            f"memory of the GPU's own NUMA node is slower than memory of another node ({rate_text(near_gb_s)} vs "
            f"{rate_text(far_gb_s)}), so launchers bind ranks to the wrong node",
            "compare `nvidia-smi topo -m` with the board's manual. Update the firmware, or bind ranks by hand "
            "(`numactl --cpunodebind`)",
            Evidence(direction, f"near {rate_text(near_gb_s)}, far {rate_text(far_gb_s)}", "pinned memory"),
        )
    must_have_speeds(hardware)
    must_have_run(hardware.gpus, hardware)
    if all(copy.is_near is not False for test in hardware.gpus for copy in test.copies):
        raise NotApplicable("no copy from the memory of another NUMA node was timed")


# Healthy copies of pinned memory reach 76 to 90% of the link (16x gen 3: 12 of 15.75, gen 5: 55 of 63 GB/s).
WARN_BELOW = Bound(
    0.60, "of the rate of the PCIe link; a slower copy is a WARN",
    "in published measurements, healthy machines copy faster than this",
    "tests/search/gpus/test_published_results.py",
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
FAIL_BELOW = Bound(
    0.30, "of the rate of the PCIe link; a slower copy is a FAIL",
    "this is half of the share for a WARN; such a link may run at an older PCIe generation",
    JUDGMENT,
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
SIBLING_WARN_BELOW = Bound(
    0.80, "of the median of the other GPUs of its model; a slower copy is a WARN",
    "copies of equal GPUs of one node differ by a few percent",
    JUDGMENT,
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip


@run_check(
    "pcie-copy-slow",
    blame=Blame.HOST,
    unseen=Unseen.ACCEPTANCE,
    reads=("hardware", "nodes"),
    bounds=(WARN_BELOW, FAIL_BELOW, SIBLING_WARN_BELOW, SIGMAS),
)
def pcie_copy_slow(case: Case) -> Findings:
    """Copies between the host and each chosen GPU are as fast as the link allows and as on the other GPUs.

    Yields a WARN for each GPU with copies below its link's rate or far below the other GPUs. Yields a FAIL if the
    copies are far below the link's rate.

    Can't see: links that are full only if several GPUs copy at once.
    """
    # A GPU with slow host copies waits long for data and checkpoints. Each direction is judged alone.
    hardware = gpu_results_of(case)
    limits = dict(hardware.host_limits_gb_s)
    for direction in ("h2d", "d2h"):
        speeds = best_copies(hardware, direction)
        below = [gpu for gpu, speed in speeds.items() if gpu in limits and speed < WARN_BELOW.value * limits[gpu]]
        lagging = [each for each in gpu_laggards(case, speeds, SIBLING_WARN_BELOW.value) if each[0] not in below]
        slow = [(gpu, "its link can carry", limits[gpu]) for gpu in below]
        slow += [(gpu, "other GPUs reach", middle) for gpu, _, middle in lagging]
        for gpu, who, usual in slow:
            is_failing = gpu in below and speeds[gpu] < FAIL_BELOW.value * usual
            words, speed = "from the host" if direction == "h2d" else "to the host", speeds[gpu]
            yield pcie_copy_slow.finding(
                Severity.FAIL if is_failing else Severity.WARN,
                gpu_called(case, gpu),
                f"the GPU copies {words} at {rate_text(speed)}, but {who} {rate_text(usual)} ({speed / usual:.0%})",
                "run `nvidia-smi -q -d PCIE` during a copy. If the output shows fewer lanes or an older generation "
                "than the slot has, reseat the card or riser. If not, check the slot's switch, and payload size and "
                "relaxed ordering in the BIOS",
                Evidence(f"{direction} copy", rate_text(speed), "pinned memory"),
                *_link(hardware, gpu),
                parts=part_of_gpu(case.nodes[0], gpu),
            )
    must_have_speeds(hardware)
    must_have_run(hardware.gpus, hardware)


def best_copies(hardware: Hardware, direction: str) -> dict[int, float]:
    """Return {GPU: copy speed in GB/s} for `direction` ("h2d" or "d2h").

    If the GPU's own NUMA node is known, only copies with memory of this NUMA node count.
    """
    copies = ((test.gpu, copy) for test in hardware.gpus for copy in test.copies if copy.direction == direction)
    return by_gpu((gpu, copy.gb_s) for gpu, copy in copies if copy.is_near is not False)


def _link(hardware: Hardware, gpu: int) -> Iterator[Evidence]:
    load = next((test.copying for test in hardware.gpus if test.gpu == gpu), None)
    if isinstance(load, UnderLoad) and not isinstance(load.pcie_gen_max, Gap):
        link = f"generation {load.pcie_gen_max}, x{known_or(load.pcie_width_min, '?')}"
        yield Evidence("link while copying", link, "NVML during the copy")
