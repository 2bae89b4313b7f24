"""What an Xid means is said once, in `model/xids.py`: explain blames the GPU for what check fails or warns of."""

from __future__ import annotations

import pytest

from preflight.judge.run.new_hardware_errors import BY_MEANING
from preflight.model.explanation import Confidence
from preflight.model.finding import Severity
from preflight.model.xids import ROWS, XidMeaning, XidRow
from tests.explain.logs import explain_bytes

ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
EXPECTED = {Severity.FAIL: Confidence.HIGH, Severity.WARN: Confidence.MEDIUM}


def said_of(number: int) -> tuple[str, Confidence | None]:
    """Return the first cause of a log in which an Xid precedes a CUDA error, and how sure explain is."""
    lines = f"[75239.64] NVRM: Xid (PCI:0000:5d:00): {number}, pid=4711, name=python\n[rank3]: {ILLEGAL}\n"
    causes = explain_bytes(lines.encode()).causes
    return (causes[0].cause, causes[0].confidence) if causes else ("", None)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words.replace(" ", "-"))
def test_explain_is_as_sure_of_an_xid_as_check_is(row: XidRow) -> None:
    severity = BY_MEANING[row.meaning]
    if row.meaning is XidMeaning.REMAPPING:
        severity = Severity.WARN  # a log holds no counters of row remapping, and check warns where it has none
    for number in row.numbers:
        cause, confidence = said_of(number)
        assert (cause == "xid_or_ecc") == (severity in EXPECTED), number
        assert cause != "xid_or_ecc" or confidence is EXPECTED[severity], number


def test_an_xid_45_is_as_the_xid_that_it_names_as_its_cause() -> None:
    ended = b"kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=4711, name=python3, Ch 00000001"
    (named, *_), alone = explain_bytes(ended + b" caused by previous Xid 79\n").causes, explain_bytes(ended + b"\n")
    assert (named.cause, named.confidence) == ("xid_or_ecc", Confidence.HIGH)
    assert "xid_or_ecc" not in {each.cause for each in alone.causes}


def test_power_that_is_not_connected_is_the_gpus_fault_and_a_contained_error_or_a_report_is_not() -> None:
    assert said_of(54) == ("xid_or_ecc", Confidence.HIGH)
    assert said_of(94)[0] == said_of(163)[0] == "cuda_illegal_address"
