from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from preflight.errors import NotApplicable, UnreadableFact
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
from preflight.judge.gpus_of_node import SLOWED_BY, SLOWED_BY_HARDWARE
from preflight.judge.outside_cause import signal_from_outside
from preflight.judge.seen_again import parts_of_ranks
from preflight.judge.workarounds import must_have_trials
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import Gap, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gap import NOT_OFFERED
from preflight.model.gpu_test import Ending, Hardware, UnderLoad
from preflight.model.parts import part_of_gpu

# Equal GPUs differ by some percent in what their power limit lets them do; no healthy one is a tenth below the rest.
WARN_BELOW = Bound(
    0.90, "of the median GPU's speed; a slower GPU gets a WARN",
    "in a GEMM, GPUs of one model differ by a few percent",
    JUDGMENT,
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
FAIL_BELOW = Bound(
    0.75, "of the median GPU's speed; a slower GPU gets a FAIL",
    "if a GPU is a quarter slower than the others, every step of a job waits for this GPU",
    JUDGMENT,
    "too high: healthy hardware is blamed; too low: slow hardware passes",
)  # fmt: skip
LASTING_SHARE = Bound(
    0.2, "of the samples under load, and at least 2 samples, show throttling",
    "when the load starts, the power supply may cause throttling in one sample",
    JUDGMENT,
    "too low: one short reaction counts as throttling; too high: throttling during a part of the load passes",
)  # fmt: skip


@run_check(
    "gpu-slow",
    blame=Blame.GPU,
    unseen=Unseen.ACCEPTANCE,
    reads=("hardware", "nodes"),
    bounds=(WARN_BELOW, FAIL_BELOW, SIGMAS),
)
def gpu_slow(case: Case) -> Findings:
    """Every chosen GPU computes as fast as the others of its model.

    Yields a WARN for each GPU that is slower than the others of its model. Yields a FAIL if the GPU is far slower.

    Can't see: GPUs that are all equally slow, a single GPU, and which of two GPUs is slow if they differ by less than a
    fifth.
    """
    # A GPU that is slower than the others delays every step of the job. The problem names the matrix product in which
    # the GPU is slowest.
    hardware = gpu_results_of(case)
    worst: dict[int, tuple[float, str, float, float]] = {}
    for dtype in dict.fromkeys(gemm.dtype for test in hardware.gpus for gemm in test.gemms):
        speeds = by_gpu((t.gpu, gemm.tflop_s) for t in hardware.gpus for gemm in t.gemms if gemm.dtype == dtype)
        for gpu, value, middle in gpu_laggards(case, speeds, WARN_BELOW.value):
            found = (value / middle, dtype, value, middle)
            worst[gpu] = min(worst.get(gpu, found), found)
    for gpu, (share, dtype, value, middle) in sorted(worst.items()):
        yield gpu_slow.finding(
            Severity.FAIL if share < FAIL_BELOW.value else Severity.WARN,
            gpu_called(case, gpu),
            f"the GPU computes at {share:.0%} of the speed of the median GPU ({value:.1f} vs {middle:.1f} TFLOP/s in "
            f"{dtype})",
            "compare this GPU's clocks, power limit and temperature with the other GPUs under load (`nvidia-smi -q "
            "-d CLOCK,POWER,PERFORMANCE,TEMPERATURE`). Check its cooling and power cables",
            Evidence("GEMM speed", f"{value:.1f} TFLOP/s; median of the others {middle:.1f}", f"{dtype} GEMM"),
            *_load_evidence(hardware, gpu),
            parts=part_of_gpu(case.nodes[0], gpu),
        )
    must_have_speeds(hardware)
    must_have_run(hardware.gpus, hardware)
    if len({test.gpu for test in hardware.gpus}) < 2:
        raise NotApplicable("a single GPU can't be compared with others")


def _load_evidence(hardware: Hardware, gpu: int) -> Iterator[Evidence]:
    """Yield NVML's values for this GPU while it computed."""
    for test in hardware.gpus:
        if test.gpu == gpu and test.repetition == 0 and isinstance(test.computing, UnderLoad):
            load = test.computing
            reasons = ", ".join(known_or(load.throttle_reasons, ("?",))) or "none"
            clock = "?" if isinstance(load.sm_mhz_median, Gap) else f"{load.sm_mhz_median:.0f} MHz"
            heat = "?" if isinstance(load.temperature_c_max, Gap) else f"{load.temperature_c_max} °C"
            yield Evidence("GPU under load", f"{clock}, {heat}, throttle reasons: {reasons}", "NVML during the GEMMs")


@run_check(
    "gpu-throttled-under-load", blame=Blame.HOST, unseen=Unseen.ACCEPTANCE, reads=("hardware",), bounds=(LASTING_SHARE,)
)
def gpu_throttled_under_load(case: Case) -> Findings:
    """No chosen GPU is slowed down by heat or by its power supply while it computes.

    Yields a FAIL for each GPU that the hardware slowed down in at least a fifth of the samples. Yields a WARN if the
    driver slowed the GPU down.

    Can't see: heat that needs longer to build up than the test lasts; `--profile burn` tests for minutes.
    """
    # If the hardware slows a GPU down under load, the cooling or power is bad.
    hardware = gpu_results_of(case)
    named: set[int] = set()
    for test in hardware.gpus:
        if isinstance(test.computing, Gap) or test.gpu in named:
            continue
        reasons = [reason for reason in _lasting(test.computing) if reason in SLOWED_BY]
        if reasons:
            named.add(test.gpu)
            heat = test.computing.temperature_c_max
            hot = "" if isinstance(heat, Gap) else f" ({heat} °C)"
            yield gpu_throttled_under_load.finding(
                Severity.WARN if SLOWED_BY_HARDWARE.isdisjoint(reasons) else Severity.FAIL,
                gpu_called(case, test.gpu),
                f"the GPU slowed down during the GEMMs because "
                f"{' and '.join(SLOWED_BY[reason] for reason in reasons)}{hot}",
                "check the fans, the air or water flow and the power supplies in the BMC. `nvidia-smi -q -d "
                "PERFORMANCE` under load shows whether the GPU is still throttled",
                Evidence("throttle reasons under load", ", ".join(reasons), "NVML during the GEMMs"),
                parts=part_of_gpu(case.nodes[0], test.gpu),
            )
    must_have_run(hardware.gpus, hardware)
    for test in hardware.gpus:
        if isinstance(test.computing, Gap) and test.gemms and not test.repetition:
            raise UnreadableFact(f"GPU {test.gpu} under load: {test.computing.reason}")
        load = test.computing.throttle_reasons if isinstance(test.computing, UnderLoad) else ()
        if isinstance(load, Gap) and not load.reason.startswith(NOT_OFFERED):
            raise UnreadableFact(f"GPU {test.gpu} under load: {load.reason}")


def _lasting(load: UnderLoad) -> tuple[str, ...]:
    """Return the throttle reasons in at least two samples and at least a fifth of all samples.

    If the samples were not counted, return all reasons.
    """
    reasons, counted = known_or(load.throttle_reasons, ()), dict(load.throttled_samples)
    if not counted:
        return reasons
    return tuple(reason for reason in reasons if counted.get(reason, 0) >= max(2, LASTING_SHARE.value * load.samples))


@run_check("gpu-unkillable", blame=Blame.GPU, unseen=Unseen.ACCEPTANCE, reads=("trials",))
def gpu_unkillable(case: Case) -> Findings:
    """preflight could end every process of every trial.

    Yields a FAIL for each rank whose process survived SIGKILL.

    Can't see: processes that preflight did not start.
    """
    # A process that survives SIGKILL is stuck in the kernel, nearly always in the driver of its GPU.
    for trial in must_have_trials(case):
        for end in trial.ranks:
            if end.ended == "unkillable":
                yield gpu_unkillable.finding(
                    Severity.FAIL,
                    f"trial {trial.candidate}, rank {end.rank}",
                    f"rank {end.rank} survived SIGKILL, in {end.stage}",
                    "read `ps -eo pid,stat,wchan:32,cmd | grep ' D'` and `dmesg | grep -iE 'xid|hung'`. Then drain "
                    "the node and reboot it, because a process in D state keeps its GPU until the reboot",
                    Evidence("how it ended", f"{end.ended} {end.detail}".strip(), f"trial {trial.candidate}"),
                    blame=Blame.GPU if case.wants_gpus else Blame.HOST,
                    parts=parts_of_ranks(case, (end.rank,)),
                )


WORDS = {Ending.HANG: "hangs", Ending.CRASH: "fails"}


@run_check("gpu-unusable", blame=Blame.GPU, unseen=Unseen.ACCEPTANCE, reads=("hardware",))
def gpu_unusable(case: Case) -> Findings:
    """Every chosen GPU, tested alone, multiplies matrices and copies data to and from the host.

    Yields a FAIL for each GPU whose own test hung or crashed.

    Can't see: faults that need other kernels, several GPUs or hours.
    """
    # If the tests of one GPU hang or crash on one GPU alone, without NCCL, the GPU is faulty. If another program killed
    # the test, the problem does not blame the GPU.
    hardware = gpu_results_of(case)
    failed = {test.gpu: test for test in reversed(hardware.gpus) if test.end in WORDS}
    for gpu, test in sorted(failed.items()):
        yield gpu_unusable.finding(
            Severity.FAIL,
            gpu_called(case, gpu),
            f"the GPU {WORDS[test.end]} in a test without other GPUs and NCCL: {test.problem}",
            "read `dmesg | grep -iE 'xid|nvrm'` and `nvidia-smi -q` for this GPU. Then reset the GPU or reboot the "
            "node. If the GPU fails again, replace it",
            Evidence("GEMMs and host copies", f"{test.end.value}: {test.problem}", f"GPU {gpu}"),
            blame=Blame.HARNESS if signal_from_outside(test.problem) else Blame.GPU,
            parts=part_of_gpu(case.nodes[0], gpu),
        )
    must_have_run(hardware.gpus, hardware)


FIX = (
    "replace the GPU. For the vendor, first run `dcgmi diag -r 4` or NVIDIA's field diagnostics, and `nvidia-smi -q "
    "-d ECC,ROW_REMAPPER`"
)


@run_check("gpu-wrong-results", blame=Blame.GPU, unseen=Unseen.ACCEPTANCE, reads=("hardware",))
def gpu_wrong_results(case: Case) -> Findings:
    """Every chosen GPU computes the same bits each time and the same bits as the other GPUs, and its results are right.

    Yields a FAIL for each GPU whose results are wrong, change, or differ from the results of the other GPUs.

    Can't see: faults that need other kernels, more heat or more time; with one GPU, results that the CPU did not check.
    """
    # A GPU that computes wrong bits silently ruins a training run.
    hardware = gpu_results_of(case)
    problems_of: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for test in hardware.gpus:
        if test.end is Ending.WRONG:
            when = f"under load {test.repetition}" if test.repetition else "before the trials"
            problems_of[test.gpu].append((when, test.problem))
    for gpu, differs in _other_bits(hardware):
        problems_of[gpu].append(differs)
    for gpu, problems in problems_of.items():
        yield gpu_wrong_results.finding(
            Severity.FAIL,
            gpu_called(case, gpu),
            f"the GPU gives wrong results: {problems[0][1]}",
            FIX,
            *(Evidence(when, what, "GEMMs and host copies") for when, what in problems[:8]),
            parts=part_of_gpu(case.nodes[0], gpu),
        )
    must_have_run(hardware.gpus, hardware)


def _other_bits(hardware: Hardware) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield each GPU whose result differs from the result of the majority.

    Each item also has the matrix product and the problem. Only one result is right on all GPU models. If no result has
    a majority, every GPU is named.
    """
    digests: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    for test in hardware.gpus:
        for gemm in test.gemms:
            digests[gemm.dtype, gemm.rows].append((test.gpu, gemm.digest))
    for (dtype, rows), load in digests.items():
        counts = Counter(digest for _, digest in load).most_common()
        # If no result has a majority, it is unknown which is right, and each GPU is named.
        right = counts[0][0] if counts[0][1] > len(load) / 2 else ""
        for gpu in dict.fromkeys(gpu for gpu, digest in load if digest != right and len(counts) > 1):
            yield (
                gpu,
                (f"{dtype}, {rows} rows", "the bits of its result differ from those of other GPUs or repetitions"),
            )
