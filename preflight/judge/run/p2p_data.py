"""Copies between two GPUs that hang, or that CUDA calls successful and that never arrive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.iommu_translates import TRANSLATING
from preflight.judge.run.below_nccl import hardware_of, must_have_run, pair_called
from preflight.judge.workaround import works
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.gpu_test import Ending, PairTruth
from preflight.model.trial import TrialResult
from preflight.plan.seats import NVLINK

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


def judge(case: Case) -> Iterator[Finding]:
    """Yield one finding for the pairs that NVLink joins and one for those that PCIe does."""
    hardware = hardware_of(case)
    if hardware is None:
        return
    groups: dict[bool, list[PairTruth]] = defaultdict(list)
    for pair in hardware.pairs:
        if pair.end in BROKEN:
            groups[_has_nvlink(case.nodes[0], pair)].append(pair)
    for over_nvlink, pairs in groups.items():
        yield _finding(case, pairs, over_nvlink)
    must_have_run(hardware.pairs)


def _finding(case: Case, pairs: list[PairTruth], over_nvlink: bool) -> Finding:
    told = ", ".join(dict.fromkeys(BROKEN[pair.end] for pair in pairs))
    named = sorted({(pair.a, pair.b) for pair in pairs})
    safe = any(works(trial) and not may_use_p2p(trial, over_nvlink) for trial in case.trials)
    return Finding(
        check=CHECK.name,
        blame=Blame.GPU if over_nvlink else Blame.HOST,
        severity=Severity.WARN if safe else Severity.FAIL,
        subject=pair_called(case, named),
        problem=f"{told}, over {'NVLink' if over_nvlink else 'PCIe'}, without NCCL; {UNPROTECTED}",
        fix=MEANWHILE + _repair(case.nodes[0], over_nvlink),
        evidence=(*(_evidence(pair) for pair in pairs[:8]), *_configuration(case.nodes[0])),
    )


def may_use_p2p(trial: TrialResult, over_nvlink: bool) -> bool:
    """Tell whether a trial's data may have gone through peer access; where nothing tells, it may have."""
    env = dict(trial.env)
    if env.get("NCCL_P2P_DISABLE") == "1" or (env.get("NCCL_P2P_LEVEL") == "NVL" and not over_nvlink):
        return False
    return not trial.transport or any(name.startswith(("P2P", "NVLS")) for name in trial.transport)


def _evidence(pair: PairTruth) -> Evidence:
    driver = pair.driver.value.replace("_", " ") if not isinstance(pair.driver, Gap) else "?"
    cuda = {True: "yes", False: "no"}[pair.cuda] if not isinstance(pair.cuda, Gap) else "?"
    load = f", under load {pair.repetition}" if pair.repetition else ""
    return Evidence(
        f"GPUs {pair.a}-{pair.b}{load}", f"{pair.problem}; driver says {driver}, CUDA {cuda}", "peer copies"
    )


def _configuration(node: NodeFacts) -> Iterator[Evidence]:
    if not isinstance(node.pci, Gap):
        types = {device.iommu_type for device in node.pci if not isinstance(device.iommu_type, Gap)} & TRANSLATING
        if types:
            yield Evidence("IOMMU groups", f"translating ({', '.join(sorted(types))})", "/sys/kernel/iommu_groups")


def _repair(node: NodeFacts, over_nvlink: bool) -> str:
    if over_nvlink:
        return NVLINKS
    is_virtual = not isinstance(node.system, Gap) and node.system.hypervisor not in ("none",)
    return VIRTUAL if is_virtual and not isinstance(node.system.hypervisor, Gap) else BARE_METAL  # type: ignore[union-attr]


def _has_nvlink(node: NodeFacts, pair: PairTruth) -> bool:
    if isinstance(node.gpu_paths, Gap):
        return False
    found = (path.level for path in node.gpu_paths if {path.a, path.b} == {pair.a, pair.b})
    return any(isinstance(level, str) and NVLINK.fullmatch(level) for level in found)


CHECK = RunCheck(
    name="p2p-data",
    promise="every byte that is copied between two chosen GPUs arrives, by copy engine and by kernel, both ways",
    blame=Blame.HOST,
    reads=("hardware", "nodes", "trials"),
    blind_to="faults that show only under more load, at other sizes, or after hours",
    judge=judge,
)
