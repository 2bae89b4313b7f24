"""The first screens of `preflight fleet` and `preflight baseline`: the answer, who it is about, what to do next."""

from __future__ import annotations

import random
from typing import Any

import pytest

from preflight.fleet.known_good import learn_from
from preflight.fleet.overview import overview
from preflight.model.codec import encode
from preflight.model.fleet import Fleet, Learnt
from preflight.show.baseline import baseline_page
from preflight.show.fleet import fleet_page
from preflight.show.screen import ROWS
from preflight.show.text import Detail, Style, width_of
from tests.fleet.test_known_good import documents
from tests.fleet.test_overview import fleet_of, report
from tests.reports import node_facts, report_of, trial_result
from tests.show.outputs import hostile, keep_screen

LOST = {"check": "gpu-lost", "severity": "fail", "subject": "GPU 3", "problem": "the GPU has fallen off the bus"}
FAILED = {"node_verdict": "reject", "findings": [LOST]}
CUT = {"verdict": "unknown", "exit_code": 130, "headline": "unknown: stopped by SIGINT at trial default"}
WRITTEN = ("overview/fleet.html", "overview/*_nodes.txt")


def changed(host: str, **system: Any) -> dict[str, Any]:
    """Return a report of a slow node with settings of its own."""
    made = report(host, random.Random(host))
    made["nodes"][0]["system"] |= system
    for result in made["trials"][0]["results"]:
        result["busbw_gb_s"] *= 0.7
    return made


def differing(share: float) -> list[tuple[str, object, str]]:
    """Return reports of good nodes that differ by so much."""
    chance = random.Random(7)
    made = [trial_result(median_us=800 * chance.gauss(1, share)) for _ in range(10)]
    return [(f"{i}.json", encode(report_of(nodes=(node_facts(host=f"n{i}"),), trials=(each,))), "")
            for i, each in enumerate(made) for _ in range(3)]  # fmt: skip


FLEETS = {
    "alike": fleet_of(50),
    "odd": fleet_of(50, n007=changed("n007"), n031=changed("n031", kernel="5.15.0")),
    "failed": fleet_of(50, n001=FAILED, n002=FAILED, n007=changed("n007"), n009=CUT),
    "unknown": fleet_of(6, n000=CUT, n001=CUT, n002=CUT),
    "nothing": overview([("a.json", {"x": 1}, ""), ("b.json", None, "empty")]),
}
LEARNT = {
    "sure": learn_from(documents(count=40, times=4)),
    "weak": learn_from(differing(0.08)),
    "measured_once": learn_from(documents(report_of(simulated=True), count=8, times=1)),
}


def screen_of(fleet: Fleet, width: int = 80) -> str:
    return fleet_page(fleet, "overview", WRITTEN).shown(Detail.SCREEN, Style(width))


@pytest.mark.parametrize("name", sorted(FLEETS))
def test_the_screen_of_many_nodes_is_the_expected_one(name: str) -> None:
    keep_screen(f"fleet_{name}", screen_of(FLEETS[name]))


@pytest.mark.parametrize("name", sorted(LEARNT))
def test_the_screen_of_a_baseline_is_the_expected_one(name: str) -> None:
    keep_screen(f"baseline_{name}", baseline_page(LEARNT[name], "golden.json").shown(Detail.SCREEN, Style()))


@pytest.mark.parametrize("name", sorted(FLEETS))
@pytest.mark.parametrize("width", [60, 80, 120])
def test_whatever_the_reports_hold_is_one_screen(name: str, width: int) -> None:
    lines = screen_of(hostile(FLEETS[name]), width).splitlines()
    assert len(lines) <= ROWS
    assert all(width_of(line) <= width and line.isprintable() for line in lines)


@pytest.mark.parametrize("learnt", LEARNT.values(), ids=list(LEARNT))
@pytest.mark.parametrize("width", [60, 80, 120])
def test_whatever_a_baseline_was_learnt_from_is_one_screen(learnt: Learnt, width: int) -> None:
    lines = baseline_page(hostile(learnt), "golden.json").shown(Detail.SCREEN, Style(width)).splitlines()
    assert len(lines) <= ROWS
    assert all(width_of(line) <= width and line.isprintable() for line in lines)


def test_nodes_that_failed_alike_share_a_line_and_stand_first() -> None:
    page = screen_of(FLEETS["failed"])
    assert "FAIL  n[001-002] (2): gpu-lost: GPU 3: the GPU has fallen off the bus" in page
    assert page.index("FAIL") < page.index("OUTLIER") < page.index("UNKNOWN  n009")
    assert "drain the nodes in overview/failing_nodes.txt" in page
    assert "--out DIR writes the lists" in fleet_page(FLEETS["failed"]).shown(Detail.SCREEN, Style())


def test_the_answer_alone_is_one_line() -> None:
    pages = [fleet_page(each).shown(Detail.VERDICT, Style()) for each in FLEETS.values()]
    pages += [baseline_page(each, "golden.json").shown(Detail.VERDICT, Style()) for each in LEARNT.values()]
    assert [page.count("\n") for page in pages] == [1] * len(pages)
    assert pages[0].startswith("ALL ALIKE  50 nodes, all ready")
