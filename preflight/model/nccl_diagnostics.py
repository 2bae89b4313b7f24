"""The lines of NCCL's own diagnostics, in NCCL's words."""
# The variables are NCCL_RUN_DIAGNOSTICS=1 (since NCCL 2.31) and NCCL_RUN_RAS_DIAGNOSTICS=1 (since NCCL 2.32). Each form
# is a row. A test compares the rows with the strings of a real library.

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from preflight.model.parsing import version_tuple

SINCE = (2, 31)
PREFIX = r"NCCL DIAG (?:\[\w{1,8}\])? {0,4}"
LINE = re.compile(r"NCCL DIAG (?:\[\w{1,8}\])? {0,4}(\S[^\n]{0,600})")


class Says(Enum):
    """The meaning of a diagnostics line for the machine."""

    FINE = "what was looked at is in order, or only counted"
    UNKNOWN = "the check was inconclusive"
    DIFFERS = "something is unusual; it may explain a failure, and healthy runs have it too"
    FAILED = "something failed; a healthy machine never prints it"


@dataclass(frozen=True, slots=True)
class Diag:
    """One form of a diagnostics line, and the meaning of the line.

    `pattern` matches the line without NCCL's prefix, and must match in linear time.
    """

    says: Says
    pattern: str


PAIR_FAILED = r"p2p: (?:(?:write|read) mismatch|peer-memory import failed) srcRank="
ECC_UNCORRECTED = r"ECC: uncorrected volatile errors on rank"
SXID_FATAL = r"SXid \d{1,6} detected [^\n]{0,80}\(NVSwitch driver reported Fatal"
SLOW_PATH = r"net bw: [\w-]{1,20} rank \d{1,7} \([^)\n]{0,80}\): [\d.]{1,12} Gbit/s, >\d{1,3}% off median"
RDMA_TOPOLOGY = r"rdma_topo check: failed on rank"
LINK_DIFFERS = r"NVLink: (?:link-count mismatch|inactive link|inconsistent link speeds)"
VERSION_DIFFERS = r"(?:CUDA driver version|NVIDIA graphics driver version): mismatch"
VARIABLE_DIFFERS = r"NCCL environment: NCCL_\w{1,60}=[^\n]{0,200} on rank\(s\)"

PAIR = re.compile(r"p2p: [\w /-]{1,40} srcRank=(\d{1,6}) [^\n]{0,80}?dstRank=(\d{1,6})(?:[^\n]{0,80}? path=(\w{1,8}))?")
VALUES = re.compile(r"expected=(0x[0-9a-f]{1,16}) got=(0x[0-9a-f]{1,16})")
COMPLETED = "NCCL diagnostics completed in"

FORMS = (
    Diag(Says.FAILED, PAIR_FAILED),
    Diag(Says.FAILED, ECC_UNCORRECTED),
    Diag(Says.FAILED, SXID_FATAL),
    Diag(Says.FAILED, r"Xid \d{1,6} detected [^\n]{0,160}(?:resetting the affected GPU)"),
    Diag(Says.DIFFERS, r"S?Xid \d{1,6} detected "),
    Diag(Says.DIFFERS, SLOW_PATH),
    Diag(Says.DIFFERS, r"net bw: [\w-]{1,20}: \d{1,7} more ranks >\d{1,3}% off median"),
    Diag(Says.DIFFERS, RDMA_TOPOLOGY),
    Diag(Says.DIFFERS, LINK_DIFFERS),
    Diag(Says.DIFFERS, VERSION_DIFFERS),
    Diag(Says.DIFFERS, VARIABLE_DIFFERS),
    Diag(Says.FINE, r"NCCL environment: (?:mismatch across|\d{1,7} NCCL_\* env var)"),  # their values follow
    Diag(Says.DIFFERS, r"GPU inventory: (?:count|model) mismatch"),
    Diag(Says.DIFFERS, r"ECC: corrected volatile errors at or above threshold"),
    Diag(Says.DIFFERS, r"IOMMU mode: enabled|IOMMU groups: GPU and NIC groups differ"),
    Diag(Says.DIFFERS, r"ATS state: (?:disabled on|ATSCtl disabled)"),
    Diag(Says.DIFFERS, r"p2p: only \d{1,12}/\d{1,12} GPU-to-GPU peer accesses passed"),
    Diag(Says.UNKNOWN, r"net bw: mode=[^\n]{0,400}"),
    Diag(Says.UNKNOWN, r"net bw: (?:invalid|cannot|required external tool|capability probe|failed: |setup failed on)"),
    Diag(Says.UNKNOWN, r"net bw: (?:multiple net devices|net devices are shared|test unable to|bootstrap failure)"),
    Diag(Says.UNKNOWN, r"p2p: (?:destination buffer unavailable|local CUDA setup failed|topology check failed)"),
    Diag(Says.UNKNOWN, r"p2p: (?:launch/check failed|setup failed on rank|resource cleanup failed|check returned \d)"),
    Diag(Says.UNKNOWN, r"(?:transport detect|RAS diagnostics) returned \d|INFO RAS diagnostics skipped"),
    Diag(Says.UNKNOWN, r"[\w /]{2,40}: (?:diagnostics incomplete|incomplete for comm|unavailable)"),
    Diag(Says.UNKNOWN, r"rdma_topo check: (?:not usable|mixed results)"),
    Diag(Says.UNKNOWN, r"IOMMU mode: unable to|IOMMU groups: (?:comparison )?unavailable"),
    Diag(Says.UNKNOWN, r"IOMMU mode: [\w ]{1,30} on \d{1,7} device"),
    Diag(
        Says.UNKNOWN, r"ATS state: (?:unable to|PCIe capabilities|unavailable|ATSCtl unavailable|lspci|network device)"
    ),
    Diag(Says.UNKNOWN, r"Xid/SXid: (?:no kernel-log source|recent-event scan was truncated)"),
    Diag(Says.UNKNOWN, r"Paths: could not locate"),
    Diag(Says.UNKNOWN, r"GPU inventory: [^\n]{1,200}unavailable via NVML"),
    Diag(Says.UNKNOWN, r"NCCL environment: \d{1,7} rank\(s\) had >"),
    Diag(Says.FINE, r"GPU inventory: [^\n]{1,200}consistent across"),
    Diag(Says.FINE, r"ECC: no uncorrected volatile errors"),
    Diag(Says.FINE, r"NVLink: \d{1,4} links per GPU, all active"),
    Diag(Says.FINE, r"NCCL environment: NCCL_\* env vars consistent"),
    Diag(Says.FINE, r"rdma_topo check: passed"),
    Diag(
        Says.FINE, r"IOMMU mode: [\w() -]{1,40} (?:for|across) \d{1,7} relevant|IOMMU groups: GPU and NIC groups match"
    ),
    Diag(Says.FINE, r"ATS state: enabled on"),
    Diag(Says.FINE, r"Xid/SXid: no events"),
    Diag(Says.FINE, r"Paths: "),
    Diag(Says.FINE, r"net bw: (?:skipped|[\d.]{1,12}/[\d.]{1,12}/[\d.]{1,12} Gbit/s)"),
    Diag(Says.FINE, r"p2p: (?:verified P2P access|temporarily enabled context-wide)"),
    Diag(Says.FINE, r"[\w /]{2,40}: [^\n]{1,120} (?:consistent )?across \d{1,7} ranks in comm"),
    Diag(Says.FINE, r"=== \w{2,8} Diagnostics ===|(?:RAS|NCCL) diagnostics completed in"),
)


@dataclass(frozen=True, slots=True)
class NcclDiagnosis:
    """The output of NCCL's own diagnostics in one test run, and the reason if the diagnostics did not finish."""

    nccl: str  # its version
    lines: tuple[str, ...]  # without NCCL's prefix, as far as they were kept
    problem: str  # why the diagnosis did not run to its end; empty if it did
    duration_s: float

    @property
    def failures(self) -> tuple[str, ...]:
        """The lines that a healthy machine never prints."""
        forms = {line: form_of(line) for line in self.lines}
        return tuple(line for line, form in forms.items() if form is not None and form.says is Says.FAILED)

    @property
    def failed_pairs(self) -> dict[tuple[int, int], str]:
        """The first failure line of each pair of ranks, as {(from, to): line}."""
        found = [(pair, line) for line in self.failures if (pair := PAIR.search(line))]
        return {(int(pair[1]), int(pair[2])): line for pair, line in reversed(found)}


def may_run(version: str) -> bool:
    """Return whether NCCL `version` supports the diagnostics."""
    return version_tuple(version) >= SINCE


def lines_of(text: str) -> tuple[str, ...]:
    """Return the lines of NCCL's diagnosis in the log `text`, without NCCL's prefix and without repetitions."""
    return tuple(dict.fromkeys(match[1] for match in LINE.finditer(text)))


def printed(*patterns: str) -> str:
    """Return a pattern for a diagnostics line: NCCL's prefix, and then any of `patterns`."""
    return PREFIX + "(?:" + "|".join(patterns) + ")"


def form_of(text: str) -> Diag | None:
    """Return the row of the table that matches `text`, or None if no row matches.

    `text` is a diagnostics line without NCCL's prefix.
    """
    return next((form for form in FORMS if re.match(form.pattern, text)), None)


def unusual(line: str) -> str:
    """Return a diagnostics line without its prefix if the line reports a failure or a difference, else ""."""
    match = LINE.search(line)
    form = form_of(match[1]) if match else None
    return match[1] if match and form and form.says in (Says.DIFFERS, Says.FAILED) else ""
