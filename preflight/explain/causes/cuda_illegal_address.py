"""A kernel of the program accessed memory outside its allocation, or failed an assertion."""

from __future__ import annotations

from preflight.explain.cause import Cause, Sign, by_signs, fixed
from preflight.explain.event import Authority

CAUSE = Cause(
    promise="The program that ran on the GPU made a mistake. It is reported late, by whoever uses the GPU "
    "next: often NCCL, which is innocent.",
    signs=(
        Sign("illegal.access", Authority.OWN_ERROR, "a GPU kernel touched memory that is not its own",
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
             "the driver stopped a program for what its kernel did (Xid 13, 31 or 43)",
             r"NVRM: Xid \([^)\n]{1,60}\): (?:13|31|43)\b"),
    ),
    judge=by_signs(
        "A GPU kernel of {who}{host} crashed (illegal memory access or a failed device-side assertion); "
        "the other ranks only lost it.",
    ),
    remedy=fixed(
        "Run once with CUDA_LAUNCH_BLOCKING=1: the traceback then names the operation (slower; for "
        "finding the fault only).",
        "Common reasons: a label or token id outside the embedding or class range (python -c on the data, or run the "
        "same batch on the CPU), a custom or compiled kernel, an attention kernel not made for this GPU.",
        "compute-sanitizer --tool memcheck python train.py ... finds the kernel. If it is always the "
        "same GPU and never another: look for Xid 13/31/79 in dmesg.",
    ),
    needs="the same operation in the traceback twice",
    confirm_with="CUDA_LAUNCH_BLOCKING=1 with the same command; `preflight check --profile standard` checks the GPUs",
    outranks=("ib_broken", "nccl_plugin_problem", "p2p_broken", "version_mismatch"),
)  # fmt: skip
