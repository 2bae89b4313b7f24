"""The versions of CUDA, NCCL, the driver and torch do not fit together, or two copies of a library are in use."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign, by_nccl, by_signs, fill_in, shared
from preflight.explain.causes.not_nccl import claim_of_known, place_of
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.explain.signatures import filled, find
from preflight.model.nccl_diagnostics import VERSION_DIFFERS, printed

ID, PACKAGE = "version_mismatch", "packages"
VERDICT = "Software versions do not fit together ({who}{host}): NCCL, CUDA, the driver or the GPU's generation."
DIFFERS = "The ranks run different versions. NCCL's own check says: {said}."
IMPORT_SIGN = "version.import"
IMPORT = re.compile(r"cannot import name '(\w{1,60})' from '([\w.]{1,120})")
MIXED = "Python packages of different releases are mixed ({who}{host}): {2} has no {1}."
SAME_IMAGE = "Use the same container image on every node."
LOADED = (
    'Print the loaded versions: python -c "import torch; print(torch.__version__, torch.version.cuda, '
    'torch.cuda.nccl.version(), torch.cuda.get_arch_list())"; nvidia-smi',
    "Look for a second copy: pip list | grep -i -e nccl -e nvidia; echo $LD_LIBRARY_PATH; ldconfig "
    "-p | grep nccl. Unset LD_LIBRARY_PATH or remove the wrong copy.",
    "If the driver is too old, update it, or install the torch wheel for the CUDA that nvidia-smi shows. If the "
    "GPU is too new, install a torch whose get_arch_list() names it.",
    SAME_IMAGE,
)


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that versions are incompatible, based on the errors about versions in `events`.

    If only NCCL's diagnostics report different versions, return None unless a rank timed out.
    """
    if not events:
        return _by_exception(evidence)
    if events[0].authority is Authority.SILENCE:
        return by_nccl(evidence, events, DIFFERS)
    lacks = _lacks(events)
    return by_signs(VERDICT if lacks is None else filled(MIXED, lacks))(evidence, events)


def _by_exception(evidence: LogEvidence) -> Claim | None:
    """Return this cause if the message of the job's first exception is known to mean incompatible packages."""
    raised = evidence.raised()
    if not raised or evidence.successes():
        return None
    first, error = raised[0]
    found = find([first.text], evidence.versions)
    if found is None or found.row.cause != ID:
        return None
    same = tuple(event for event, other in raised if other == error)
    place = place_of(evidence, first)
    verdict = fill_in(found.verdict, same) + (f" The error was raised{place}." if place else "")
    return claim_of_known(evidence, raised, same, error, "the message says what does not fit", verdict, (PACKAGE,))


def _lacks(events: tuple[Event, ...]) -> re.Match[str] | None:
    """Return the match with the name and the module of a failed import.

    Return None if the first event is not a failed import.
    """
    return IMPORT.search(events[0].text) if events[0].sign == IMPORT_SIGN else None


def remedy(evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for incompatible versions.

    If an import between two Python packages failed, the steps find matching releases.
    """
    if PACKAGE in claim.detail:
        return Remedy("python -m pip check prints packages that need another release.", SAME_IMAGE)
    lacks = _lacks(claim.events)
    if lacks is None:
        return Remedy(*LOADED)
    package = lacks[2].partition(".")[0]
    frame = evidence.frame(claim.events[0])
    importer = f" (line {frame.line} of {frame.file})" if frame is not None else ""
    if f"/{package}/" in importer:
        again = (
            f"Reinstall it: python -m pip uninstall -y {package}, again until nothing is left, then python -m pip "
            "install the release you want."
            if f"-packages/{package}/" in importer
            else "Check out one release of its repository: `git status` shows changed files."
        )
        return Remedy(
            f"{package} imports from itself{importer}, so files of two releases are mixed. {again}",
            SAME_IMAGE,
        )
    return Remedy(
        f"python -m pip show {package} prints the installed release of {package}; python -m pip check prints packages "
        "that need another release.",
        f"Install the release of {package} that the importing package{importer} was made for, or an importing package "
        f"that fits your {package}.",
        SAME_IMAGE,
    )


CAUSE = Cause(
    promise="Parts of the software come from different releases, and they do not work together.",
    signs=(
        *shared(Authority.SETUP, "version.too_old", "version.arch"),
        Sign("version.driver", Authority.SETUP, "the driver does not fit the CUDA that the program was built with",
             r"Can't find nvml\w{1,60}(?:: | in NVML)|driver/library version mismatch|"
             r"Driver/library version mismatch|[Ee]rror 803|"
             r"unsupported display driver / cuda driver combination|forward compatibility was attempted|"
             r"NCCL cannot be captured in a graph if|were compiled with different CUDA|CUDAMismatchException|"
             r"does not match the version torch was compiled with|mismatches the version that was used to compile"),
        Sign("version.symbol", Authority.SETUP, "another version of a library is found first",
             r"undefined symbol: _?[Zz]?\w{0,12}(?:nccl|cuda|cublas|cudnn|nvJitLink|nvtx)\w{0,80}|"
             r"undefined symbol: _ZNK?\d(?:at|c10|torch)|undefined symbol: (?:cu|nv)[A-Z_]\w{1,60}|"
             r"version \S{1,3}(?:GLIBC|GLIBCXX|CXXABI|libcud|NVJITLINK)\S{0,30} not found"),
        Sign(IMPORT_SIGN, Authority.SETUP, "a Python package lacks what another package imports from it",
             r"cannot import name '\w{1,60}' from '(?:vllm|torch|transformers|flash_attn|deepspeed|apex|triton|"
             r"xformers|sglang|megatron|transformer_engine)(?:\.[\w.]{1,100})?'"),
        Sign("version.nccl", Authority.SETUP, "ranks run different versions of NCCL",
             r"Mismatched NCCL version detected|"
             r"NCCL version mismatch with remote peer|NCCL_VERSION mismatch|ncclLibrary version mismatch|"
             r"Message truncated : received \d{1,9} bytes instead"),
        Sign("version.init", Authority.UNEXPLAINED_DEATH,
             "CUDA could not start in this process: driver and CUDA do not fit together, or the process was forked "
             "after CUDA had started",
             r"Cuda failure (?:3 )?'initialization error'|CUDA error: initialization error"),
        Sign("version.diagnosed", Authority.SILENCE, "NCCL's own diagnostics found versions that differ between ranks",
             printed(VERSION_DIFFERS)),
        Sign("version.lib", Authority.SETUP, "a library that the program needs is missing",
             r"(?:[A-Za-z]Error|libraries): lib(?:nccl|cud\w{0,8}|cublas\w{0,4}|"
             r"nv\w{0,16})\.so[.\d]{0,16}: cannot open shared object|libnccl\.so\.\d{1,3} => not found"),
    ),
    judge=judge,
    remedy=remedy,
    infers=True,
    confirmed_if="the versions of NCCL, CUDA or the driver differ between ranks, or do not fit each other",
    confirm_with="preflight probe",
    outranks=("illegal_instruction", "not_nccl", "segfault_worker"),
)  # fmt: skip
