from __future__ import annotations

from collections.abc import Collection, Iterator

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.gpus_of_node import pairs_called
from preflight.judge.run.p2p import BROKEN, nvlink_pairs, repair_of_copies
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Evidence, Finding, Severity, Unseen
from preflight.model.gpu_test import Ending, PairTruth
from preflight.model.nccl_diagnostics import PAIR, NcclDiagnosis

SOURCE = "NCCL_RUN_DIAGNOSTICS=1"
COVERS = "NCCL writes only eight bytes, and only between GPUs that it connects directly"
ONCE_MORE = "run `preflight check` once more"


@run_check("nccl-diagnosis", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("diagnosis", "hardware", "nodes"))
def nccl_diagnosis(case: Case) -> Findings:
    """NCCL's own diagnosis finds no fault, and agrees with preflight's own copies between the GPUs.

    Yields a WARN for pairs that only NCCL or only preflight found broken, and an INFO for pairs that both found broken.
    Yields a WARN for each other failure that NCCL names.

    Can't see: pairs that NCCL joins in another way, and faults of messages larger than eight bytes.
    """
    # NCCL 2.31 and later can test pairs of GPUs itself. The quick profile runs this diagnosis only if a test run
    # failed.
    if not case.diagnosis:
        raise NotApplicable("NCCL's own diagnosis (2.31 and later) was not run")
    diagnosis = case.diagnosis[-1]
    named = dict(_by_gpus(case, diagnosis))
    pairs = () if case.hardware is None or isinstance(case.hardware, Gap) else case.hardware.pairs
    copied = {(pair.a, pair.b): pair for pair in pairs if pair.end in BROKEN or pair.end is Ending.OK}
    for own in (*BROKEN, Ending.OK, None):
        alike = {gpus: line for gpus, line in named.items() if _ending(copied, gpus) is own}
        if alike:
            yield _from_nccl(case, diagnosis, alike, own)
    unseen = [pair for gpus, pair in copied.items() if pair.end in BROKEN and gpus not in named]
    if unseen and not diagnosis.problem:
        yield nccl_diagnosis.finding(
            Severity.WARN,
            pairs_called(case.nodes[0], [(pair.a, pair.b) for pair in unseen]),
            f"{BROKEN[unseen[0].end]} in preflight's own test, but NCCL's own diagnosis found no fault; {COVERS}",
            f"trust preflight's copies, which are larger: {_repair(case, [(pair.a, pair.b) for pair in unseen])}",
            Evidence(f"NCCL {diagnosis.nccl}", _summary(diagnosis), SOURCE),
        )
    for line in diagnosis.failures:
        if PAIR.search(line) is None:
            yield nccl_diagnosis.finding(
                Severity.WARN,
                f"NCCL {diagnosis.nccl}'s own diagnosis",
                f"NCCL reports: {line}",
                "run `nvidia-smi -q` and `dmesg | grep -i xid` to check the part that NCCL names",
                Evidence(f"NCCL {diagnosis.nccl}", line, SOURCE),
            )
    if diagnosis.problem:
        raise UnreadableFact(f"NCCL's own diagnosis did not run to its end: {diagnosis.problem}")


def _from_nccl(case: Case, diagnosis: NcclDiagnosis, lines: dict[tuple[int, int], str], own: Ending | None) -> Finding:
    """Return one finding for the pairs that NCCL calls broken.

    `own` is the result of preflight's own copies, or None if there is no result.
    """
    fix = _repair(case, lines)
    if own is Ending.OK:
        beside, fix = "preflight's own copies arrived", f"{ONCE_MORE}. If NCCL names these GPUs again, {fix}"
    elif own is None:
        beside = "preflight did not test this itself"
    else:
        beside = f"preflight's own test agrees: {BROKEN[own]}"
    return nccl_diagnosis.finding(
        Severity.INFO if own in BROKEN else Severity.WARN,
        pairs_called(case.nodes[0], sorted(lines)),
        f"NCCL's own diagnosis found that data does not arrive; {beside}",
        fix,
        *(Evidence(f"NCCL {diagnosis.nccl}", line, SOURCE) for line in list(lines.values())[:8]),
    )


def _repair(case: Case, pairs: Collection[tuple[int, int]]) -> str:
    linked = nvlink_pairs(case.nodes[0])
    return repair_of_copies(case.nodes[0], all(frozenset(pair) in linked for pair in pairs))


def _ending(copied: dict[tuple[int, int], PairTruth], gpus: tuple[int, int]) -> Ending | None:
    return copied[gpus].end if gpus in copied else None


def _by_gpus(case: Case, diagnosis: NcclDiagnosis) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield (pair of GPUs, line) for each pair whose failure NCCL reports in a line.

    The pair has the NVML indices, with the smaller index first.
    """
    for ranks, line in diagnosis.failed_pairs.items():
        if max(ranks) < len(case.gpus):
            a, b = sorted(case.gpus[rank] for rank in ranks)
            yield (a, b), line


def _summary(diagnosis: NcclDiagnosis) -> str:
    of_pairs = [line for line in diagnosis.lines if line.startswith("p2p: ")]
    return of_pairs[0] if of_pairs else "it printed no line about pairs of GPUs"
