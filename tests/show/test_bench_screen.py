"""The first screen of `preflight bench`: the answer, each collective beside what its links give, what to do next."""

from __future__ import annotations

import dataclasses

import pytest

from preflight.model.collective import Collective
from preflight.model.report import Report
from preflight.model.trial import Outcome, without_speeds
from preflight.show.bench import CURE, FASTER, bench_page
from preflight.show.check_page import STOPPED
from preflight.show.screen import AGAIN, ROWS
from preflight.show.text import Detail, Style, width_of
from tests.node_facts import trial
from tests.reports import report_of, timed, trial_result
from tests.show import eight_gpus, judged
from tests.show.golden_reports import REPORTS, healthy
from tests.show.outputs import every_report, hostile, keep_screen

HANGS = "rank 3 hung at the first collective; ranks 0 to 2 and 4 to 7 timed out waiting"


def benched(machine: str, hangs: bool) -> Report:
    """Return what the default alone comes to on a recorded machine of eight GPUs."""
    node = eight_gpus.recorded_node(machine)
    if hangs:
        tried = trial("default", world_size=8, results=(), outcome=Outcome.HANG, culprits=(3,), problem=HANGS)
    else:
        tried = trial("default", world_size=8, results=eight_gpus.measured(node, 0.93))
    return judged.judged((node,), (tried,), world_size=8, gpus=tuple(range(8)), accept=False)


BENCHES = {
    "good": benched("h100x8", hangs=False),
    "bad": benched("l20x10", hangs=True),
    "unknown": REPORTS["unknown"](),
}
EVERY = every_report() | BENCHES


@pytest.mark.parametrize("name", sorted(BENCHES))
def test_the_screen_is_the_expected_one(name: str) -> None:
    keep_screen(f"bench_{name}", bench_page(BENCHES[name]).shown(Detail.SCREEN, Style()))


@pytest.mark.parametrize("name", sorted(EVERY))
@pytest.mark.parametrize("width", [60, 80, 120])
def test_whatever_was_measured_is_one_screen(name: str, width: int) -> None:
    lines = bench_page(hostile(EVERY[name]), "bench.json").shown(Detail.SCREEN, Style(width)).splitlines()
    assert len(lines) <= ROWS
    assert all(width_of(line) <= width and line.isprintable() for line in lines)


def test_what_comes_next_depends_on_what_failed() -> None:
    pages = {name: " ".join(bench_page(EVERY[name]).shown(Detail.SCREEN, Style()).split()) for name in EVERY}
    assert FASTER in pages["good"]
    assert CURE in pages["bad"], "settings may cure what the default does not survive"
    assert AGAIN in pages["blame gpu"], "no setting cures a broken GPU"
    stopped = dataclasses.replace(BENCHES["unknown"], exit_code=130)
    assert STOPPED in " ".join(bench_page(stopped).shown(Detail.SCREEN, Style()).split())
    assert pages["good"].endswith("-v prints nccl-tests' table)")
    assert bench_page(healthy(), "bench.json").shown(Detail.SCREEN, Style()).endswith("Written  bench.json\n")


def test_wrong_data_and_speeds_that_nobody_knows_are_shown_as_such() -> None:
    wrong = dataclasses.replace(timed(Collective.BROADCAST, verified=False), wrong_elements=3)
    assert "WRONG" in bench_page(report_of(trials=(trial_result(results=(wrong,)),))).shown(Detail.SCREEN, Style())
    busy = bench_page(report_of(trials=(without_speeds(trial_result(), "GPU 0 was in use"),))).shown(
        Detail.SCREEN, Style()
    )
    assert "all_reduce ? ? verified" in " ".join(busy.split())
