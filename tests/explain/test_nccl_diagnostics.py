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
