from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from preflight.errors import NotApplicable, NotRun
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.gpu_test_results import gpu_results_of, must_have_run, must_have_speeds
from preflight.judge.gpus_of_node import pairs_called
from preflight.judge.pci_fabric import TRANSLATING
from preflight.judge.workarounds import works
from preflight.model.facts import Gap, NodeFacts, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gpu_test import CopyBy, Direction, Ending, Hardware, PairTruth
from preflight.model.trial import TrialResult
from preflight.plan.gpus.locality import NVLINK

BROKEN = {Ending.WRONG: "data does not arrive", Ending.HANG: "copies hang", Ending.CRASH: "copies crash"}
UNPROTECTED = (
    'no NCCL setting protects `tensor.to("cuda:1")`, `device_map` or pipeline code: those copies go wrong all the same'
)
BARE_METAL = (
    "boot with `iommu=pt` (or the IOMMU off in the firmware), and turn ACS off on the bridges between the GPUs "
    "(`lspci -vvv | grep ACSCtl` as root, then `setpci -s BRIDGE ECAP_ACS+6.w=0`)"
)
VIRTUAL = "on the host of this virtual machine: ACS and ATS as the vendor's guide for pass-through says"
NVLINKS = "`nvidia-smi nvlink -s`, `dmesg | grep -i xid`, `systemctl status nvidia-fabricmanager`; reset or replace it"
MEANWHILE = "until then NCCL_P2P_LEVEL=NVL with NVLink, NCCL_P2P_DISABLE=1 without; "


@run_check("p2p-data", blame=Blame.HOST, unseen=Unseen.ACCEPTANCE, reads=("hardware", "nodes", "trials"))
def p2p_data(case: Case) -> Findings:
    """Every byte that is copied between two chosen GPUs arrives, by copy engine and by kernel, both ways.

    Copies between two GPUs may hang, or CUDA calls them successful and they never arrive. Yields one finding for the
    pairs that NVLink joins and one for those that PCIe does.

    Can't see: faults that show only under more load, at other sizes, or after hours.
    """
    hardware = gpu_results_of(case)
    groups: dict[bool, list[PairTruth]] = defaultdict(list)
    for pair in hardware.pairs:
        if pair.end in BROKEN:
            groups[_has_nvlink(case.nodes[0], pair)].append(pair)
    for over_nvlink, pairs in groups.items():
        faults = ", ".join(dict.fromkeys(BROKEN[pair.end] for pair in pairs))
        safe = any(works(trial) and not may_use_p2p(trial, over_nvlink) for trial in case.trials)
        yield p2p_data.finding(
            Severity.WARN if safe else Severity.FAIL,
            pairs_called(case.nodes[0], sorted({(pair.a, pair.b) for pair in pairs})),
            f"{faults}, over {'NVLink' if over_nvlink else 'PCIe'}, without NCCL; {UNPROTECTED}",
            MEANWHILE + _repair(case.nodes[0], over_nvlink),
            *(_evidence(pair) for pair in pairs[:8]),
            *_configuration(case.nodes[0]),
            blame=Blame.GPU if over_nvlink else Blame.HOST,
        )
    if len({test.gpu for test in hardware.gpus}) == 1 and not hardware.pairs:
        raise NotApplicable("a single GPU has no peer")
    must_have_run(hardware.pairs)


def may_use_p2p(trial: TrialResult, over_nvlink: bool) -> bool:
    """Tell whether a trial's data may have gone through peer access; where nothing tells, it may have."""
    env = dict(trial.env)
    if env.get("NCCL_P2P_DISABLE") == "1" or (env.get("NCCL_P2P_LEVEL") == "NVL" and not over_nvlink):
        return False
    return not trial.transport or any(carrier.name.startswith(("P2P", "NVLS")) for carrier in trial.transport)


def _evidence(pair: PairTruth) -> Evidence:
    driver = pair.driver.value.replace("_", " ") if not isinstance(pair.driver, Gap) else "?"
    cuda = "?" if isinstance(pair.cuda, Gap) else "yes" if pair.cuda else "no"
    load = f", under load {pair.repetition}" if pair.repetition else ""
    words = f"{pair.problem}; driver says {driver}, CUDA {cuda}"
    return Evidence(f"GPUs {pair.a}-{pair.b}{load}", words, "peer copies")


def _configuration(node: NodeFacts) -> Iterator[Evidence]:
    types = {known_or(device.iommu_type, "") for device in known_or(node.pci, ())} & TRANSLATING
    if types:
        yield Evidence("IOMMU groups", f"translating ({', '.join(sorted(types))})", "/sys/kernel/iommu_groups")


def _repair(node: NodeFacts, over_nvlink: bool) -> str:
    if over_nvlink:
        return NVLINKS
    hypervisor = "none" if isinstance(node.system, Gap) else known_or(node.system.hypervisor, "none")
    return BARE_METAL if hypervisor == "none" else VIRTUAL


def _has_nvlink(node: NodeFacts, pair: PairTruth) -> bool:
    found = (path.level for path in known_or(node.gpu_paths, ()) if {path.a, path.b} == {pair.a, pair.b})
    return any(NVLINK.fullmatch(known_or(level, "")) for level in found)


# Over NVLink 88 % is usual (H200: 396 of 450 GB/s); over PCIe a host bridge between the two may cost half of the link.
NVLINK_WARN_BELOW, NVLINK_FAIL_BELOW = 0.60, 0.30
SIBLING_WARN_BELOW = 0.70

Pair = tuple[int, int]


@run_check("p2p-slow", blame=Blame.GPU, unseen=Unseen.NOTHING, reads=("hardware",))
def p2p_slow(case: Case) -> Findings:
    """Copies between two chosen GPUs reach what NVLink carries, and what pairs joined alike do.

    Yields a finding for each pair that copies far below its links, or below the pairs that are joined alike; the quick
    profile measures none.

    Can't see: `--profile quick`, which times no pair; pairs slow only beside others; all PCIe pairs slow alike.
    """
    hardware = gpu_results_of(case)
    speeds = one_way(hardware)
    limits = {(limit.a, limit.b): limit for limit in hardware.pair_limits}
    levels: dict[str, list[Pair]] = defaultdict(list)
    for pair in speeds.keys() & limits.keys():
        levels[limits[pair].level].append(pair)
    for pair, speed in speeds.items():
        limit = limits.get(pair)
        if limit is None:
            continue
        others = [speeds[other] for other in levels[limit.level] if other != pair]
        # Over PCIe only siblings tell.
        over_nvlink = NVLINK.fullmatch(limit.level) is not None
        if over_nvlink and speed < NVLINK_WARN_BELOW * limit.gb_s:
            severity = Severity.FAIL if speed < NVLINK_FAIL_BELOW * limit.gb_s else Severity.WARN
            usual = f"its links carry {limit.gb_s:.0f} GB/s one way"
        elif len(others) > 1 and speed < SIBLING_WARN_BELOW * median(others):
            severity = Severity.WARN
            usual = f"pairs that are joined alike ({limit.level}) reach {median(others):.1f} GB/s"
        else:
            continue
        yield p2p_slow.finding(
            severity,
            pairs_called(case.nodes[0], [pair]),
            f"copies at {speed:.1f} GB/s over {limit.level or 'an unknown path'}; {usual}",
            "`nvidia-smi nvlink -s` and `-e` for links that are down or repeat; reseat the bridge"
            if over_nvlink
            else "the slots' lanes and generation (`lspci -vv | grep LnkSta`), ACS on the bridges between the two",
            Evidence("copy engine, slower direction", f"{speed:.1f} GB/s", "64 MiB, behind a spinning kernel"),
            blame=Blame.GPU if over_nvlink else Blame.HOST,
        )
    must_have_speeds(hardware)
    if not speeds:
        single = len({test.gpu for test in hardware.gpus}) == 1 and not hardware.pairs
        raise NotApplicable("a single GPU has no peer") if single else NotRun("no pair was timed (quick times none)")


def one_way(hardware: Hardware) -> dict[Pair, float]:
    """Return the slower direction's copy engine speed of each pair that may access its peer."""
    found: dict[Pair, float] = {}
    for pair in hardware.pairs:
        by_engine = [each for each in pair.speeds if each.by is CopyBy.COPY_ENGINE]
        ways = [each.gb_s for each in by_engine if each.direction is not Direction.BOTH]
        known = [speed for speed in ways if not isinstance(speed, Gap)]
        if known and pair.cuda is not False:
            found[pair.a, pair.b] = min(known)
    return found
