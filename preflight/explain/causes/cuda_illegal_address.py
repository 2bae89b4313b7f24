"""A CUDA kernel of the program accessed memory outside its allocation, or failed an assertion."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, by_signs, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence

CRASHED = by_signs(
    "A GPU kernel of {who}{host} crashed (illegal memory access or a failed device-side assertion). The other ranks "
    "only lost their connection to this rank."
)


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a CUDA kernel failed.

    Return None for an illegal memory access if an NCCL transfer of the same rank failed before.
    """
    # After a failed transfer, NCCL frees memory that its kernels still use, which causes the same error.
    first = events[0]
    lost = (
        event for event in evidence.of("ib.completion")
        if event.source == first.source and event.line < first.line and event.rank in ("", first.rank)
    )  # fmt: skip
    return None if first.sign == "illegal.access" and any(lost) else CRASHED(evidence, events)


CAUSE = Cause(
    promise="A kernel on the GPU failed. The next library that uses the GPU reports the failure. This library is "
    "often NCCL, "
    "which did not cause it.",
    signs=(
        Sign("illegal.access", Authority.OWN_ERROR, "a GPU kernel accessed memory outside its own",
             r"illegal memory access|cudaErrorIllegalAddress|Invalid __(?:global|shared|local)__ (?:read|write)|"
             r"CUDA_ERROR_ILLEGAL_ADDRESS"),
        Sign("illegal.assert", Authority.OWN_ERROR, "a GPU kernel found an index or value out of range",
             r"device-side assert triggered|cudaErrorAssert|Assertion `[^\n`]{1,120}` failed\.?$"),
        Sign("illegal.other", Authority.OWN_ERROR, "a GPU kernel failed",
             r"misaligned address|unspecified launch failure|"
             r"aicore (?:exception|timeout|execution)|\b507015\b|EZ9999[^\n]{0,60}aicore|cudaErrorLaunchFailure|"
             r"invalid program counter|"
             r"CUDA_EXCEPTION_\d{1,3}|cudaErrorMisaligned|the launch timed out and was terminated|hardware stack error|"
             r"(?:CUBLAS|CUDNN)_STATUS_(?:EXECUTION_FAILED|MAPPING_ERROR|INTERNAL_ERROR)"),
        Sign("illegal.xid", Authority.OWN_ERROR,
             "the driver stopped a program because of a fault in its kernel (Xid 13, 31 or 43)",
             r"NVRM: Xid \([^)\n]{1,60}\): (?:13|31|43)\b"),
    ),
    judge=judge,
    remedy=fixed(
        "Run once with CUDA_LAUNCH_BLOCKING=1. The traceback then names the operation, but the job is slower.",
        "Common reasons are a label or token id outside the embedding or class range (run the same batch on the CPU "
        "to test this), a custom or compiled kernel, or an attention kernel that does not support this GPU.",
        "Run compute-sanitizer --tool memcheck python train.py ... to find the kernel. If the same GPU fails every "
        "time, look for Xid 13, 31 or 79 in dmesg.",
    ),
    confirmed_if="the tracebacks of two runs end in the same operation",
    confirm_with="export CUDA_LAUNCH_BLOCKING=1   # for the same command; `preflight check` tests the GPUs",
    outranks=("ib_broken", "nccl_plugin_problem", "p2p_broken", "version_mismatch"),
)  # fmt: skip
