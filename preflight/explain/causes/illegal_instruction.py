"""The CPU does not support an instruction that a library uses."""

from __future__ import annotations

from preflight.explain.cause import Cause, Sign, by_signs, fixed
from preflight.explain.event import Authority

CAUSE = Cause(
    promise="A library uses instructions (usually AVX, AVX2 or AVX-512) that this processor or virtual machine does "
    "not support.",
    signs=(
        Sign("sigill.gpu", Authority.OWN_ERROR, "a GPU kernel contains an instruction that the GPU does not support",
             r"an illegal instruction was encountered|cudaErrorIllegalInstruction"),
        Sign("sigill", Authority.UNEXPLAINED_DEATH, "a process died of an instruction that the processor does not "
        "support",
             r"Illegal instruction(?: +\(core dumped\)|: +\d|$)|\bSIGILL\b|exitcode {0,4}: {0,2}-4\b|"
             r"exited on signal 4\b|return code = -4\b|[Ee]xit(?:ed with)?(?: exit)? code 132|trap invalid opcode|"
             r"Signal: Illegal instruction|Fatal Python error: Illegal instruction"),
    ),
    judge=by_signs(
        "{who}{host} died of an illegal instruction. The code was built for another processor or GPU, or is damaged.",
    ),
    remedy=fixed(
        "List what the processor supports: grep -m1 -o -w -e avx -e avx2 -e avx512f /proc/cpuinfo | sort -u  "
        '(in a virtual machine: CPU type "host").',
        'If the error is of the GPU ("an illegal instruction was encountered"), run with CUDA_LAUNCH_BLOCKING=1. The '
        'kernel was '
        "built for another GPU generation or is faulty, or the GPU is unstable.",
        'Find the library: python -X faulthandler -c "import torch", then the other libraries. '
        "Install a build for this processor, or build the library here.",
    ),
    confirmed_if="the same import crashes in a separate process",
    confirm_with='python -X faulthandler -c "import torch"',
)  # fmt: skip
