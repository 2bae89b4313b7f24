"""Direct copies between GPUs of one machine (peer to peer) hang, fail or lose data."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign, Variant, fill_in, fixed, shared
from preflight.explain.causes import hang_no_error
from preflight.explain.collective_waits import Wait, behind, find_mismatch
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.explain.nccl_start import StartStep
from preflight.explain.run_ends import ABORT, DEATH
from preflight.model.explanation import Confidence
from preflight.model.job_phases import Phase
from preflight.model.nccl_diagnostics import PAIR, VALUES
from preflight.model.repairs import ACS, IOMMU, PASS_THROUGH

VERDICT = "Direct copies between the GPUs of one machine (P2P) do not work{host}."
WORKER = re.compile(r"WorkerProc|Scheduler hit an exception|EngineCore")
OF_CUDA = re.compile(r"CUDA|[Cc]uda|driver|[Mm]ulticast|[Ff]abric|SymmDeviceMemory")
IF_NCCL_TOO = (
    "If NCCL then fails or hangs, direct copies between the GPUs do not work. `preflight check` names the pair."
)
OWN_TEST = "when batch testing peer-to-peer access"
# What of an engine uses the memory of other GPUs by itself, without NCCL; and nccl-tests, which compares all data.
OF_ENGINES = (
    Variant(
        r"Out of bounds values : [1-9]",
        "A test of NCCL (nccl-tests) got wrong data: a direct path between GPUs, or the network, corrupts what it "
        "carries.",
        ("Repeat the test with one of these at a time: NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1, NCCL_NET_PLUGIN=none, "
         "NCCL_IB_DISABLE=1. If the data is right with a setting, the path that it turns off is at fault.",
         "`preflight check` does this on the machine, compares the data, and names the pair of GPUs.",
         "Do not train on these machines until this is repaired. Wrong sums ruin a model without an error."),
    ),
    Variant(
        r"custom_all_?reduce\.\w{2,4}:\d{1,5}[^\n]{0,20}'invalid",
        "The engine's own all-reduce could not use the GPU memory of its other workers{host}.",
        (IF_NCCL_TOO,),
    ),
    Variant(
        OWN_TEST,
        "The engine's own test of direct copies between its GPUs failed{host}.",
        ("Read the lines below this one: they are the error of the test's own process.",
         "If PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True, unset it: other processes can't open such memory.",
         IF_NCCL_TOO),
    ),
    Variant(
        r"symm_mem\.rendezvous\(",
        "The engine's all-reduce over symmetric memory could not be set up between its GPUs{host}.",
        ("export VLLM_ALLREDUCE_USE_SYMM_MEM=0 (SGLang: leave out --enable-symm-mem). The engine then uses NCCL.",
         IF_NCCL_TOO),
    ),
    Variant(
        r"create_allreduce_fusion_workspace\(",
        "FlashInfer's fused all-reduce could not be set up between the engine's GPUs{host}.",
        ("""Start vLLM with --compilation-config '{"pass_config": {"fuse_allreduce_rms": false}}' (SGLang: """
         "--enforce-disable-flashinfer-allreduce-fusion): GPUs without NVSwitch can't have it.", IF_NCCL_TOO),
    ),
)  # fmt: skip
INFERRED = (
    "All ranks reached the first collective, but no data arrived. The path between the GPUs may be broken. "
    "On one machine, direct P2P copies are the usual cause."
)
STOPPED = "The log stops at the first copies between the GPUs of one machine. Usually direct copies (P2P) hang there."
DIAGNOSED = "NCCL's own check of direct copies failed from rank {from} to rank {to} over {path}{others}{values}."
FABRIC = re.compile(r"path=NET\b|handle=CUMEM_FABRIC")
AT_END = 3  # lines
TRACEBACK_LINES = 60  # from a frame to its exception, also if several workers print at once
FIRST_NUMBERS = 2  # some frameworks have a barrier before anything else


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that direct copies between GPUs failed, or None without evidence.

    The evidence is NCCL or CUDA errors in `events`, or all ranks waiting in the first collective.
    """
    # The wait in the first collective counts only if `events` has no errors and the log shows no network path.
    if events and events[0].authority is Authority.SILENCE:
        return _refused(evidence) or _stopped_with_iommu(evidence)
    if events and (pairs := [pair for event in events if (pair := PAIR.search(event.text))]):
        because = "NCCL copied data between these GPUs itself, and compared it (NCCL_RUN_DIAGNOSTICS=1)"
        return Claim(events[0].authority, events, Confidence.HIGH, because, _diagnosed(pairs))
    if events and events[0].sign == "p2p.engine" and not _is_refused_by_cuda(evidence, events[0]):
        events = ()
    if events:
        because = "the log says that peer-to-peer access failed"
        if events[0].sign == "p2p.wrong_data":
            because = "nccl-tests compared the data that arrived"
        engine = _of_engine(events[0])
        verdict = VERDICT if engine is None else engine.verdict
        sure = Confidence.MEDIUM if OWN_TEST in events[0].text else Confidence.HIGH
        return Claim(events[0].authority, events, sure, because, fill_in(verdict, events))
    if (stopped := _stopped_on_direct_paths(evidence)) is not None:
        return stopped
    waits = [wait for wait in evidence.waits.all() if wait.op]
    if "NET" in evidence.starts.paths or not _all_arrived_at_the_first(evidence, waits):
        return None
    because = f"all ranks wait in collective {waits[0].seq}, and no rank went further"
    caught = evidence.of("watchdog.caught")
    return Claim(Authority.REFINED_TIMEOUT, caught, Confidence.LOW, because, INFERRED)


def _diagnosed(pairs: list[re.Match[str]]) -> str:
    """Return the headline about the pairs of GPUs for which NCCL reports a failure.

    The headline names the first pair, the data that NCCL expected and got, and the number of other pairs.
    """
    first, others = pairs[0], len({pair.group(1, 2) for pair in pairs}) - 1
    values = VALUES.search(first.string)
    words = {
        "{from}": first[1],
        "{to}": first[2],
        "{path}": first[3] or "an unnamed path",
        "{others}": f", and for {others} other pair{'s'[: others - 1]}" if others else "",
        "{values}": f": it expected {values[1]} and got {values[2]}" if values else "",
    }
    return re.sub(r"\{\w+\}", lambda name: words[name[0]], DIAGNOSED)


def _fabric(evidence: LogEvidence) -> tuple[str, ...]:
    """Return advice on IMEX if NCCL names a pair of GPUs on an NVLink fabric of several nodes; else ()."""
    if not any(FABRIC.search(event.text) for event in evidence.of("p2p.diagnosed")):
        return ()
    return (
        "An NVLink fabric of several nodes joins the pair: `nvidia-imex-ctl -H -N` shows whether its IMEX domain is "
        "up. The job also needs /dev/nvidia-caps-imex-channels.",
    )


def _stopped_on_direct_paths(evidence: LogEvidence) -> Claim | None:
    """Return this cause if the log stops without an error and the job's GPUs were connected by P2P only; else None."""
    if "P2P" not in evidence.starts.paths or "NET" in evidence.starts.paths:
        return None
    stopped = hang_no_error.judge(evidence, ())
    if stopped is None or int(stopped.detail[0]) < StartStep.CHANNELS:
        return None
    because = "the log stops at the first data between GPUs of one machine, and names no error"
    return Claim(Authority.SILENCE, stopped.events, Confidence.LOW, because, STOPPED)


def _stopped_with_iommu(evidence: LogEvidence) -> Claim | None:
    """Return this cause if the log stops right after direct paths were made on a host with an RCCL warning.

    Otherwise return None. The warning is about the IOMMU of the host. RCCL prints this warning at every start on such a
    host, although most of these hosts work.
    """
    if "P2P" not in evidence.starts.paths or "NET" in evidence.starts.paths:
        return None
    if evidence.alarms() or evidence.successes() or evidence.phase(*Phase):
        return None
    source, _, line = max(evidence.starts.last_line.values(), key=lambda last: (last[0], last[2]))
    if evidence.sources[source].lines - line > AT_END:
        return None
    because = "the log stops at the first data between GPUs, and RCCL warned of this host's IOMMU"
    return Claim(Authority.SILENCE, evidence.of("p2p.iommu"), Confidence.LOW, because, STOPPED)


def _refused(evidence: LogEvidence) -> Claim | None:
    """Return this cause if P2P is not possible and the job stopped at its first collectives; else None.

    Healthy runs also print that P2P is not possible.
    """
    # If NCCL names its paths and none of them is P2P, NCCL avoids direct copies already.
    events = evidence.of("p2p.refused")
    if not events or (evidence.starts.paths and "P2P" not in evidence.starts.paths):
        return None
    went_on = evidence.phase(Phase.TRAINING, Phase.SAVING)
    is_moving = evidence.successes() or evidence.has("context.progress") or (went_on and went_on.line > events[0].line)
    is_later = any(wait.seq > FIRST_NUMBERS or wait.last_completed > FIRST_NUMBERS for wait in evidence.waits.all())
    if is_moving or is_later or evidence.exceptions:
        return None
    because = "the log shows no progress, and says that direct copies between GPUs are not possible"
    return Claim(Authority.REFINED_TIMEOUT, events, Confidence.LOW, because, fill_in(VERDICT, events))


def _all_arrived_at_the_first(evidence: LogEvidence, waits: list[Wait]) -> bool:
    # A rank that aborted itself (-6) was ended by its own watchdog: it had arrived and waited as well.
    aborted = {event.rank for event in evidence.of(ABORT)}
    ranks = {rank for rank in {wait.rank for wait in waits} | aborted if rank.isdigit()}
    first = [w for w in waits if 0 <= w.seq <= FIRST_NUMBERS and w.last_completed in (-2, -1, 0, w.seq - 1)]
    if len(ranks) < 2 or len(first) != len(waits) or len({w.seq for w in waits}) != 1:
        return False
    if find_mismatch(waits) or behind(waits) or any(w.last_completed > 0 for w in waits):
        return False
    numbers = [int(rank) for rank in ranks]
    # Without a word on the size of the job, the ranks that are there must at least leave no gap.
    return len(ranks) == (evidence.world_size or max(numbers) - min(numbers) + 1)


OF_GPUS = fixed(
    "Run once with NCCL_P2P_DISABLE=1. If the job works, direct copies are at fault. Keep the setting only until the "
    "repair.",
    f"Repair: {IOMMU}.",
    f"Also {ACS}. In a virtual machine, {PASS_THROUGH}.",
    "If NVLink joins some of the GPUs, set NCCL_P2P_LEVEL=NVL instead of NCCL_P2P_DISABLE=1. This setting turns off "
    "only direct copies over PCIe.",
    "GeForce cards (RTX 40 and others) do not have P2P, but old drivers wrongly report P2P for them. Use driver "
    "525.105 or later of branch 525, or driver 535 or later.",
    "In a container, use `docker run --ipc=host --gpus all` and the image that the framework recommends. If "
    "the image's CUDA or NCCL does not fit the host's driver, the job hangs too.",
    "If several machines take part, the network may be at fault instead. NCCL_DEBUG=INFO shows which path NCCL uses.",
    env=(("NCCL_P2P_DISABLE", "1"),),
    then=_fabric,
    )  # fmt: skip


def remedy(evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for failed direct copies between GPUs.

    If the direct-copy code of a serving engine failed, the steps are for this engine.
    """
    engine = _of_engine(claim.events[0]) if claim.events else None
    return OF_GPUS(evidence, claim) if engine is None else Remedy(*engine.steps)


def _is_refused_by_cuda(evidence: LogEvidence, frame: Event) -> bool:
    """Return whether CUDA raised an error in an engine's own code for direct copies.

    `frame` is the log line with a stack frame of this code.
    """
    is_engine = evidence.frameworks["engine"] or any(WORKER.search(event.text) for event in evidence.of(DEATH))
    raised = (
        f"{error.type}: {error.message}"
        for event, error in evidence.exceptions
        if event.source == frame.source and 0 <= event.line - frame.line <= TRACEBACK_LINES
    )
    return bool(is_engine) and any(map(OF_CUDA.search, raised))


def _of_engine(event: Event) -> Variant | None:
    return next((each for each in OF_ENGINES if re.search(each.words, event.text)), None)


CAUSE = Cause(
    promise="GPUs of one machine copy data to each other directly. Here these copies do not arrive.",
    signs=(
        *shared(Authority.SETUP, "p2p.failed", "p2p.engine", "p2p.diagnosed"),
        Sign("p2p.wrong_data", Authority.SETUP, "nccl-tests compared the data, and it was wrong",
             r"# Out of bounds values : [1-9]\d{0,12} FAILED"),
        Sign("p2p.refused", Authority.SILENCE,
             "direct copies between two GPUs are not possible on this machine", r"Could not enable P2P between"),
        Sign("p2p.iommu", Authority.SILENCE, "RCCL warns of the host's IOMMU; it also does so on hosts that work",
             r'Missing \"iommu=pt\"'),
    ),
    judge=judge,
    remedy=remedy,
    infers=True,
    confirmed_if="the job runs with NCCL_P2P_DISABLE=1 and fails without it",
    confirm_with="preflight check   # runs with default settings and with P2P off, and verifies the data",
    outranks=("watchdog_timeout_straggler", "heartbeat_monitor", "hang_no_error"),
)  # fmt: skip
