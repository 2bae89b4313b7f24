from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from preflight.errors import NotApplicable, NotRun
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.gpu_test_results import gpu_results_of, must_have_run, must_have_speeds
from preflight.judge.gpus_of_node import pairs_called
from preflight.judge.pci_fabric import TRANSLATING, WITHOUT_P2P, WITHOUT_PCIE_P2P, may_use_p2p
from preflight.judge.workarounds import default_trial, works
from preflight.model.facts import Gap, NodeFacts, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gpu_test import Ending, PairTruth
from preflight.model.parts import part_of_pair
from preflight.model.repairs import FABRIC_MANAGER, NVLINKS, P2P, P2P_VIRTUAL, UNPROTECTED
from preflight.model.units import rate_text
from preflight.search.gpus.locality import NVLINK
from preflight.search.gpus.slow_pairs import (
    NVLINK_FAIL_BELOW,
    NVLINK_WARN_BELOW,
    SIBLING_WARN_BELOW,
    SlowPair,
    pair_times,
    slow_pairs,
)

BROKEN = {Ending.WRONG: "data does not arrive", Ending.HANG: "copies hang", Ending.CRASH: "copies crash"}


@run_check("p2p-data", blame=Blame.HOST, unseen=Unseen.ACCEPTANCE, reads=("hardware", "nodes", "trials"))
def p2p_data(case: Case) -> Findings:
    """Every byte that is copied between two chosen GPUs arrives, by copy engine and by kernel, both ways.

    Yields one problem for the broken pairs with NVLink, and one problem for the broken pairs with PCIe. The problem is
    a WARN if a test run without direct copies worked, else a FAIL.

    Can't see: faults that appear only with more load, other sizes or several hours.
    """
    # CUDA may report success although the copied data never arrives.
    hardware = gpu_results_of(case)
    linked = nvlink_pairs(case.nodes[0])
    groups: dict[bool, list[PairTruth]] = defaultdict(list)
    for pair in hardware.pairs:
        if pair.end in BROKEN:
            groups[frozenset((pair.a, pair.b)) in linked].append(pair)
    default = default_trial(case.trials)
    for over_nvlink, pairs in groups.items():
        faults = ", ".join(dict.fromkeys(BROKEN[pair.end] for pair in pairs))
        keeps_nvlink = True not in groups and bool(linked)
        workaround = WITHOUT_PCIE_P2P if keeps_nvlink else WITHOUT_P2P
        safe = any(works(trial) and not may_use_p2p(trial, over_nvlink) for trial in case.trials)
        yield p2p_data.finding(
            Severity.WARN if safe else Severity.FAIL,
            pairs_called(case.nodes[0], sorted({(pair.a, pair.b) for pair in pairs})),
            f"{faults} over {'NVLink' if over_nvlink else 'PCIe'}, even without NCCL; {UNPROTECTED}",
            repair_of_copies(case.nodes[0], over_nvlink),
            *(_evidence(pair) for pair in pairs[:8]),
            *_configuration(case.nodes[0]),
            blame=Blame.GPU if over_nvlink else Blame.HOST,
            parts=tuple(dict.fromkeys(part for pair in pairs for part in part_of_pair(case.nodes[0], pair.a, pair.b))),
            workaround="" if default is not None and works(default) else workaround,
        )
    if len({test.gpu for test in hardware.gpus}) == 1 and not hardware.pairs:
        raise NotApplicable("a single GPU has no peer")
    must_have_run(hardware.pairs, hardware)


def _evidence(pair: PairTruth) -> Evidence:
    driver = pair.driver.value.replace("_", " ") if not isinstance(pair.driver, Gap) else "?"
    cuda = "?" if isinstance(pair.cuda, Gap) else "yes" if pair.cuda else "no"
    load = f", under load {pair.repetition}" if pair.repetition else ""
    words = f"{pair.problem}; driver says {driver}, CUDA {cuda}"
    return Evidence(f"GPU pair {pair.a}-{pair.b}{load}", words, "peer copies")


def _configuration(node: NodeFacts) -> Iterator[Evidence]:
    types = {known_or(device.iommu_type, "") for device in known_or(node.pci, ())} & TRANSLATING
    if types:
        yield Evidence("IOMMU groups", f"translating ({', '.join(sorted(types))})", "/sys/kernel/iommu_groups")


def repair_of_copies(node: NodeFacts, over_nvlink: bool) -> str:
    """Return how to repair wrong or hanging copies between two GPUs over NVLink or over PCIe."""
    if over_nvlink:
        return f"{NVLINKS}. Also {FABRIC_MANAGER}. Otherwise reset or replace the GPU"
    hypervisor = "none" if isinstance(node.system, Gap) else known_or(node.system.hypervisor, "none")
    return P2P if hypervisor == "none" else P2P_VIRTUAL


def nvlink_pairs(node: NodeFacts) -> frozenset[frozenset[int]]:
    """Return the pairs of GPUs (NVML indices) that NVLink connects. The set is empty if the paths are unknown."""
    paths = known_or(node.gpu_paths, ())
    return frozenset(frozenset((path.a, path.b)) for path in paths if NVLINK.fullmatch(known_or(path.level, "")))


@run_check(
    "p2p-slow",
    blame=Blame.GPU,
    unseen=Unseen.NOTHING,
    reads=("hardware",),
    bounds=(NVLINK_WARN_BELOW, NVLINK_FAIL_BELOW, SIBLING_WARN_BELOW),
)
def p2p_slow(case: Case) -> Findings:
    """Copies between two chosen GPUs are as fast as NVLink allows, and as fast as on pairs with equal links.

    Yields a WARN for each pair that was too slow in every measurement. Yields a FAIL if the pair was far below the rate
    of its links.

    Can't see: pairs in `--profile quick`, pairs that are slow only while others copy, and PCIe pairs that are all slow.
    """
    # The quick profile does not time pairs.
    hardware = gpu_results_of(case)
    times = pair_times(hardware.pairs)
    for slow in slow_pairs(times, hardware.pair_limits):
        finding = p2p_slow.finding(
            Severity.FAIL if slow.is_far_below else Severity.WARN,
            pairs_called(case.nodes[0], [slow.pair]),
            f"the pair copies at {rate_text(slow.time.gb_s)} over {slow.limit.level or 'an unknown path'}, but "
            f"{slow.usual}",
            "look for links that are down or retry (`nvidia-smi nvlink -s` and `-e`), then reseat the bridge"
            if slow.over_nvlink
            else "check the lanes and generation of the slots (`lspci -vv | grep LnkSta`), and ACS on the bridges "
            "between them",
            Evidence("copy engine, slower direction", _timed(slow), "64 MiB, behind a spinning kernel"),
            blame=Blame.GPU if slow.over_nvlink else Blame.HOST,
        )
        parts = part_of_pair(case.nodes[0], *slow.pair)
        yield replace(finding, is_unconfirmed=slow.is_far_below and slow.time.times < 2, parts=parts)
    must_have_speeds(hardware)
    if not times:
        single = len({test.gpu for test in hardware.gpus}) == 1 and not hardware.pairs
        raise (
            NotApplicable("a single GPU has no peer")
            if single
            else NotRun("no pair was timed (the quick profile times none)")
        )


def _timed(slow: SlowPair) -> str:
    best = f", the best of {slow.time.times} times" if slow.time.times > 1 else ""
    return f"{rate_text(slow.time.gb_s)}{best}"
