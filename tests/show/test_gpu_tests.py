"""The tests below NCCL as a person reads them."""

from __future__ import annotations

import pytest

from preflight.model.counters import CounterKind
from preflight.model.facts import Gap
from preflight.model.gpu import P2pStatus
from preflight.model.gpu_test import Ending
from preflight.show.console_writer import lines_of
from preflight.show.gpu_tests import hardware_section, pair_cell
from preflight.show.text import Style, width_of
from tests.hardware import counter, gpu_test, hardware, pair, speeds
from tests.node_facts import gpu_node
from tests.reports import report_of

HOSTILE = "\x1b[2J\u202eevil " + "x" * 300


def page(width: int = 80, **changes: object) -> str:
    tests = hardware(4)
    shown: dict[str, object] = {"p2p": tests.pairs, "gpu_tests": tests.gpus, "counters": tests.counters}
    report = report_of(backend="nccl", nodes=(gpu_node(4),), **{**shown, **changes})
    return "\n".join(lines_of(hardware_section(report), Style(width=width)))


def test_the_matrix_says_what_the_driver_says_what_arrived_and_how_fast() -> None:
    assert "yes/right/390" in page()
    assert pair_cell([pair(driver=P2pStatus.NOT_SUPPORTED, speeds=())]) == "no/right"
    assert pair_cell([pair(end=Ending.WRONG, speeds=())]) == "yes/WRONG"
    assert pair_cell([pair(driver=Gap("?"), end=Ending.HANG, speeds=())]) == "?/HANGS"
    assert pair_cell([pair(), pair(end=Ending.WRONG, repetition=2, speeds=())]) == "yes/WRONG/390"
    assert pair_cell([pair(end=Ending.SKIPPED, speeds=())]) == "yes/?"


def test_what_is_wrong_with_a_pair_is_told_below_with_the_repetition() -> None:
    pairs = (pair(0, 1, end=Ending.WRONG, problem="never written by sm", repetition=2, speeds=speeds()),)
    assert "0-1 (under load 2): never written by sm" in page(p2p=pairs)


def test_each_gpu_has_a_row_with_its_speeds_clock_heat_and_power() -> None:
    row = next(line for line in page().splitlines() if line.split()[:1] == ["3"])
    assert row.split() == ["3", "50.0", "700", "54.0", "54.0", "1700", "61", "656", "right"]


def test_a_gpu_that_was_not_tested_shows_question_marks_and_why() -> None:
    skipped = gpu_test(0, end=Ending.SKIPPED, problem="the time for it was up", gemms=(), copies=(), computing=Gap("x"))
    text = page(gpu_tests=(skipped,))
    assert "GPU 0: the time for it was up" in text
    assert next(line for line in text.splitlines() if line.split()[:1] == ["0"]).split().count("?") == 8


def test_only_counters_that_grew_are_named_and_those_unread_are_counted() -> None:
    counters = (counter(), counter("ecc_uncorrected", 2, kind=CounterKind.FATAL), counter("aer", Gap("no")))
    text = page(counters=counters)
    assert "GPU 0 ecc uncorrected: 2 new" in text
    assert "Error counters: 1 did not change during the run, 1 could not be read." in text


def test_on_the_cpu_path_nothing_is_shown() -> None:
    assert hardware_section(report_of()) == []


@pytest.mark.parametrize("width", [40, 80, 120])
def test_hostile_words_stay_within_the_page(width: int) -> None:
    text = page(width, p2p=(pair(end=Ending.CRASH, problem=HOSTILE),), gpu_tests=(gpu_test(problem=HOSTILE),))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert max(map(width_of, text.splitlines())) <= width
