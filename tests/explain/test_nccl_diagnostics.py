"""What NCCL's own diagnostics (NCCL_RUN_DIAGNOSTICS=1, NCCL 2.31 and later) say of a pair of GPUs is believed."""

from __future__ import annotations

import pytest

from preflight.model.explanation import Confidence, ExplainVerdict
from preflight.search.settings.environment import DIAGNOSTIC, inherited_settings
from tests.explain.logs import explain_bytes, watchdog

BEGIN = "gpu-3:811 NCCL DIAG === NCCL Diagnostics ==="
PARTIAL = "gpu-3:811 NCCL DIAG [INFO] p2p: only 11/12 GPU-to-GPU peer accesses passed verification"
END = "gpu-3:811 NCCL DIAG NCCL diagnostics completed in 41.0 ms across 4 ranks"
CHECK = "check the affected pair with 'nvidia-smi topo -p2p p', then check Linux bare-metal IOMMU mode and PCIe ACS"


def pair(what: str, source: int, to: int, rest: str, path: str = "PIX", handle: str = "CUMEM_POSIX_FD") -> str:
    """Return the line of a pair, in the words of src/diagnostics/p2p.cc."""
    ranks = f"srcRank={source} srcCudaDev={source} srcNvmlDev={source} dstRank={to} dstCudaDev={to} dstNvmlDev={to}"
    return f"gpu-3:811 NCCL DIAG [INFO] p2p: {what} {ranks} path={path} handle={handle} {rest}; {CHECK}"


WROTE = "expected=0x4000000100000003 got=0x00000000deadbeef verify=0x0000000000000000"


@pytest.mark.parametrize("after", [(END,), (END, watchdog(0, seq=1), watchdog(2, seq=1))], ids=["alone", "timeouts"])
def test_a_pair_whose_data_came_out_wrong_is_found_with_its_path_and_values(after: tuple[str, ...]) -> None:
    lines = (BEGIN, PARTIAL, pair("write mismatch", 2, 3, WROTE), *after)
    cause, *_ = explain_bytes("\n".join(lines).encode()).causes
    assert (cause.cause, cause.confidence) == ("p2p_broken", Confidence.HIGH)
    assert "from rank 2 to rank 3 over PIX: it expected 0x4000000100000003 and got 0x00000000deadbeef" in cause.verdict
    assert "NCCL" in cause.because
    assert "srcRank=2" in cause.evidence[0].text


def test_other_pairs_are_counted_and_one_without_values_is_found_too() -> None:
    lines = (
        BEGIN,
        pair("peer-memory import failed", 0, 1, "reason=import", "NVL", "CUMEM_FABRIC"),
        *[pair("read mismatch", source, 3, "expected=0x7 got=0x0") for source in (0, 1, 1)],
    )
    cause, *_ = explain_bytes("\n".join(lines).encode()).causes
    assert cause.verdict.endswith("from rank 0 to rank 1 over NVL, and for 2 other pairs.")
    assert "nvidia-imex-ctl" in cause.remedy


def test_a_check_that_passed_or_could_not_be_made_names_no_cause() -> None:
    passed = "gpu-3:811 NCCL DIAG [OK]   p2p: verified P2P access in both directions between every GPU pair (12 peer)"
    unsure = pair("destination buffer unavailable", 0, 1, "reason=noDescriptor")
    for lines in ((BEGIN, passed, END), (BEGIN, unsure, END)):
        assert explain_bytes("\n".join(lines).encode()).verdict is not ExplainVerdict.CAUSE_NAMED


COMM = "across 16 ranks in comm 0x39070f9a90241a63"
GID = "[INFO] NCCL environment: NCCL_IB_GID_INDEX="
SLOW = "[INFO] net bw: same-nic rank 3 (node0): 65.1 Gbit/s, >30% off median 391.5 Gbit/s in comm 0x7a3f9b2c41d05e88"
DIFFERENCES = {
    "variables_differ": (
        (f"{GID}3 on rank(s) 0-7", f"{GID}(unset) on rank(s) 8-15"), "3 on ranks 0-7, (unset) on ranks 8-15",
    ),
    "ib_broken": ((SLOW,), "same-nic rank 3 (node0): 65.1 Gbit/s, >30% off median 391.5 Gbit/s"),
    "nvlink_or_fabric_manager": (
        (f"[INFO] NVLink: inactive link(s) on rank(s) 5 {COMM}",), "inactive link(s) on rank(s) 5",
    ),
    "version_mismatch": (
        (f"[INFO] CUDA driver version: mismatch {COMM}, rank(s) 8-15 differ from rank 0",), "CUDA driver version",
    ),
}  # fmt: skip


@pytest.mark.parametrize("cause", DIFFERENCES)
def test_a_difference_is_likely_behind_timeouts_and_a_note_without_them(cause: str) -> None:
    texts, shown = DIFFERENCES[cause]
    lines = [BEGIN, *(f"gpu-3:811 NCCL DIAG {text}" for text in texts), END]
    named, *_ = explain_bytes("\n".join([*lines, watchdog(8, seq=1)]).encode()).causes
    assert (named.cause, named.confidence) == (cause, Confidence.MEDIUM)
    assert shown in named.verdict
    assert "NCCL's own diagnostics" in named.because
    alone = explain_bytes("\n".join(lines).encode())
    assert not alone.causes
    assert any("NCCL's own diagnostics: " in note for note in alone.notes)


def test_variables_that_name_a_nodes_own_cards_or_files_may_differ() -> None:
    for name in ("NCCL_DEBUG_FILE", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_TOPO_FILE"):
        lines = [f"gpu-3:811 NCCL DIAG [INFO] NCCL environment: {name}={value} on rank(s) {value}" for value in (0, 1)]
        assert explain_bytes("\n".join([*lines, watchdog(0)]).encode()).causes[0].cause == "watchdog_timeout_straggler"


@pytest.mark.parametrize(
    ("text", "cause", "confidence"),
    [
        (f"[INFO] ECC: uncorrected volatile errors on rank(s) 3 (worst=2) {COMM}", "xid_or_ecc", Confidence.HIGH),
        ("[INFO] Xid 79 detected at least 1 time on host gpu-3. See", "xid_or_ecc", Confidence.HIGH),
        ("[INFO] Xid 13 detected at least 1 time on host gpu-3. Restart", "", None),
        ("[INFO] SXid 20034 detected 1 time (NVSwitch driver reported Fatal, link(s) 3) on host gpu-3.",
         "nvlink_or_fabric_manager", Confidence.HIGH),
        ("[INFO] SXid 10003 detected 1 time (NVSwitch driver reported Non-fatal, link(s) 3) on host gpu-3.", "", None),
    ],
    ids=["ecc", "xid-79", "xid-13", "sxid-fatal", "sxid-not-fatal"],
)  # fmt: skip
def test_faults_of_the_hardware_are_found(text: str, cause: str, confidence: Confidence | None) -> None:
    causes = explain_bytes(f"{BEGIN}\ngpu-3:811 NCCL DIAG {text}\n{END}\n".encode()).causes
    assert ((causes[0].cause, causes[0].confidence) if causes else ("", None)) == (cause, confidence)


def test_rccls_warning_of_the_iommu_is_no_cause_of_a_timeout() -> None:
    warned = 'mi-2:70:70 [0] rccl/src/init.cc:205 NCCL WARN Missing "iommu=pt" from kernel command line'
    lines = [
        warned,
        "mi-2:70:70 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC comm 0x55d1 nRanks 02",
        "mi-2:70:70 [0] NCCL INFO ncclCommInitRank comm 0x55d1 rank 0 nranks 2 cudaDev 0 busId 5000 - Init COMPLETE",
    ]
    cause, *_ = explain_bytes("\n".join([*lines, watchdog(0, seq=1)]).encode()).causes
    assert cause.cause == "watchdog_timeout_straggler"
    stops, *_ = explain_bytes("\n".join(lines).encode()).causes
    assert (stops.cause, stops.confidence) == ("p2p_broken", Confidence.LOW)
    assert stops.verdict.startswith("The log stops")
    assert not explain_bytes(warned.encode()).causes


def test_what_only_prints_is_no_setting_that_a_job_inherits() -> None:
    inherited = tuple((name, "1") for name in (*DIAGNOSTIC, "NCCL_ALGO"))
    assert {"NCCL_RUN_DIAGNOSTICS", "NCCL_RUN_RAS_DIAGNOSTICS"} <= set(DIAGNOSTIC)
    assert [setting.name for setting in inherited_settings(inherited, "nccl")] == ["NCCL_ALGO"]
