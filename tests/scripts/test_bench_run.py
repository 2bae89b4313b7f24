"""`scripts/bench_run.py`: the interval of the median, the page, and the promise."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scripts.bench_run import Cost, describe, interval, keeps_promise
from tests.conftest import PROJECT

ALONE = Cost(10.0, 12.0)


@pytest.mark.parametrize(("count", "cut"), [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (20, 5)])
def test_the_interval_leaves_out_as_many_at_either_end_as_95_percent_allow(count: int, cut: int) -> None:
    differences = [float(each) for each in range(count)]
    assert interval(differences[::-1]) == (differences[cut], differences[-1 - cut])


def test_the_page_says_both_sides_the_difference_and_whose_cpu_time_it_was() -> None:
    pairs = [(ALONE, Cost(10.0 + more, 12.0, 0.15, 0.3, 0.03)) for more in (0.1, 0.2, 0.6)]
    page = " ".join(describe(pairs, 60).split())
    assert "3 pairs, a job of 60 steps" in page
    assert "alone 10.000 s" in page and "-- torchrun 10.200 s" in page
    assert "+0.200 s (median; 95% interval +0.100 to +0.600), +2.0%" in page
    assert "+0.050 s (median; 95% interval -0.050 to +0.450), +0.5%" in page
    assert "CPU time of all processes +0.330 s (median; 95% interval +0.330 to +0.330), +2.8%" in page
    assert "the job 12.00 s; preflight run 0.300 s until it starts and 0.030 s beside it" in page
    assert "beside the job 0.25% (at most 1%); with its start 2.75%, which is above 1%" in page
    assert "of a job of 33 s of CPU time" in page


def test_a_job_that_is_long_enough_has_its_start_within_the_share_too() -> None:
    page = describe([(ALONE, Cost(40.0, 48.0, 0.15, 0.25, 0.03))], 60)
    assert "with its start 0.58%, which is within 1%" in " ".join(page.split())


@pytest.mark.parametrize(("beside_s", "kept"), [(0.12, True), (0.13, False)])
def test_what_stays_beside_the_job_may_take_a_hundredth_of_its_cpu_time(beside_s: float, kept: bool) -> None:
    assert keeps_promise([(ALONE, Cost(10.0, 12.0, 1.0, 5.0, beside_s))]) is kept


@pytest.mark.integration
@pytest.mark.timeout(200)
def test_it_runs_both_sides_and_tells_them_apart() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "scripts.bench_run", "1", "3", "0.05"],
        cwd=PROJECT, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert ran.returncode in (0, 1), ran.stderr  # how much it is on a busy machine is not this test's business
    assert "run: 1 pairs, a job of 3 steps" in ran.stdout
    assert " 0.000 s until it starts" not in ran.stdout and " 0.000 s beside it" not in ran.stdout
