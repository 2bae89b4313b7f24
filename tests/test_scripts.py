"""The benchmarks judge their figures as they say, and run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from preflight.model.collective import Collective
from scripts import bare_torchrun, bench_accuracy, bench_hangs, bench_overhead, bench_storage
from scripts.bench_accuracy import AGAIN, OURS, PLAIN, Point
from scripts.bench_overhead import Pair

SCRIPTS = Path(bench_overhead.__file__).parent


def _point(ours_us: float, plain_us: float, again_us: float) -> Point:
    return Point(Collective.ALL_REDUCE, 65536, 100, ours_us, plain_us, again_us)


def test_the_ratio_is_that_of_the_medians_and_one_slow_run_does_not_move_it() -> None:
    pairs = [Pair(3.0, 2.0), Pair(30.0, 2.0), Pair(2.0, 4.0)]
    assert bench_overhead.ratio_of_medians(pairs) == 1.5
    assert [pair.ratio for pair in pairs] == [1.5, 15.0, 0.5]


def test_a_trial_costs_the_time_since_the_result_before_it_and_the_first_is_left_out() -> None:
    assert bench_overhead.trial_costs_s([5.0, 5.25, 5.75]) == [0.25, 0.5]


@pytest.mark.parametrize(
    ("check_s", "trial_s", "kept"), [(1.5, 0.15, True), (1.51, 0.01, False), (0.8, 0.16, False), (0.8, 0.02, True)]
)
def test_both_overheads_must_be_within_the_promise(check_s: float, trial_s: float, kept: bool) -> None:
    assert bench_overhead.keeps_promise([Pair(check_s, 1.0)], [trial_s]) is kept


def test_the_overhead_page_gives_both_medians_every_ratio_and_the_promises() -> None:
    page = bench_overhead.describe([Pair(4.0, 4.0), Pair(3.0, 2.0), Pair(5.0, 4.0)], [0.04, 0.05, 0.03])
    for part in ("4.000 s", "1.00 (at most 1.5)", "1.00 1.50 1.25", "0.040 s", "at most 0.15", "100 times"):
        assert part in page


def test_both_sides_of_a_pair_run_without_inherited_tuning() -> None:
    inherited = {"PATH": "/bin", "NCCL_P2P_DISABLE": "1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "8"}
    environ = bare_torchrun.environment(inherited, "/folder")
    assert environ == {"PATH": "/bin", "OMP_NUM_THREADS": "1", "TMPDIR": "/folder", "PYTHONPATH": str(SCRIPTS.parent)}


def test_a_repetition_takes_as_long_as_its_slowest_rank_on_every_side() -> None:
    first = {OURS: [10.0, 2.0, 3.0], PLAIN: [1.0, 1.0, 9.0], AGAIN: [4.0, 4.0, 4.0]}
    other = {OURS: [1.0, 20.0, 4.0], PLAIN: [2.0, 2.0, 2.0], AGAIN: [1.0, 5.0, 1.0]}
    point = bench_accuracy.point(0, [first, other])
    assert (point.ours_us, point.plain_us, point.again_us, point.repetitions) == (10.0, 2.0, 4.0, 3)


@pytest.mark.parametrize(
    ("ours_us", "plain_us", "again_us", "is_true"),
    [
        (104, 100, 100, True),  # within 5%
        (106, 100, 100, False),
        (94, 100, 100, False),  # too fast is as wrong as too slow
        (110, 97, 103, True),  # within twice the 6% by which the plain loop differs from itself
        (113, 97, 103, False),
    ],
)
def test_ours_is_true_within_5_percent_or_twice_what_the_plain_loop_differs_from_itself(
    ours_us: float, plain_us: float, again_us: float, is_true: bool
) -> None:
    point = _point(ours_us, plain_us, again_us)
    assert point.is_true is is_true
    assert ("MISSED" in bench_accuracy.describe([point])) is not is_true


def test_every_side_has_every_place_equally_often_and_follows_each_other_equally_often() -> None:
    orders = [order for each in bench_accuracy.ORDERS for order in each]
    for side in range(3):
        assert [sum(order[place] == side for order in orders) for place in range(3)] == [2, 2, 2]
    follows = [(order[i], order[i + 1]) for order in orders for i in (0, 1)]
    assert {pair: follows.count(pair) for pair in follows} == {(a, b): 2 for a in range(3) for b in range(3) if a != b}


def storage_pairs(*ratios: float, fio: tuple[float, ...] = ()) -> list[bench_storage.Pair]:
    """Return pairs in which the probe wrote as fast as fio, and read `ratios` times as fast."""
    theirs = fio or (1e9,) * len(ratios)
    return [
        bench_storage.Pair(bench_storage.Speed(each, each * ratio), bench_storage.Speed(each, each))
        for ratio, each in zip(ratios, theirs, strict=True)
    ]


@pytest.mark.parametrize(("ratio", "kept"), [(0.71, True), (1.29, True), (0.69, False), (1.31, False)])
def test_storage_is_within_30_percent_of_fio_by_the_median_pair(ratio: float, kept: bool) -> None:
    assert bench_storage.keeps_promise(storage_pairs(0.1, ratio, 9.0)) is kept


def test_a_disk_on_which_fio_differs_from_itself_is_called_noisy() -> None:
    assert not bench_storage.is_noisy(storage_pairs(1, 1, 1, 1, fio=(1e9, 1.1e9, 1.2e9, 1e9)))
    noisy = storage_pairs(1, 1, 1, 1, fio=(1e9, 2e9, 3e9, 1e9))
    assert bench_storage.is_noisy(noisy)
    assert "makes fio differ from itself" in bench_storage.describe(noisy, "/tmp", 1 << 28, True)


@pytest.mark.integration
def test_the_storage_benchmark_runs_and_names_what_it_ran_beside(
    need: Callable[[str, bool, str], None], tmp_path: Path
) -> None:
    need("fio", shutil.which("fio") is not None, "there is no fio here (Debian: apt-get install fio)")
    script = [sys.executable, str(SCRIPTS / "bench_storage.py"), "--pairs", "1", "--rounds", "1"]
    ran = subprocess.run(
        [*script, "--directory", str(tmp_path)], capture_output=True, text=True, timeout=110, check=False
    )
    assert ran.returncode in (0, 1), ran.stderr
    assert "write preflight" in ran.stdout
    assert ran.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.integration
@pytest.mark.parametrize(
    ("script", "arguments", "says"),
    [
        ("bench_overhead.py", ("--pairs", "1", "--trials", "3"), "ratio of medians"),
        ("bench_accuracy.py", ("--scale", "0.01"), "all_gather   16777216"),
        ("bench_decisions.py", ("--runs", "4"), "false recommendations"),
        ("bench_wrong_data.py", ("--runs", "2"), "nothing moved  standard"),
        ("bench_under_load.py", ("--runs", "1", "--busy", "4", "--kinds", "quick"), "1 runs, 0 false rejects"),
    ],
)
def test_a_benchmark_runs_and_says_what_it_measured(script: str, arguments: tuple[str, ...], says: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments], capture_output=True, text=True, timeout=110, check=False
    )
    assert ran.returncode in (0, 1), ran.stderr  # the figures of a busy machine are not this test's business
    assert says in ran.stdout
    assert "Traceback" not in ran.stderr


def test_a_check_with_hangs_may_cost_their_limits_the_timed_collectives_and_ten_seconds() -> None:
    cost = bench_hangs.Cost(
        total_s=35.0, trials=8, hung=2, stage_limit_s=10.0, timed_s=5.0, profile="standard", launch_s=3.0
    )
    assert (cost.allowed_s, cost.separate_s) == (35.0, 49.0)
    assert bench_hangs.keeps_promise(cost)
    assert not bench_hangs.keeps_promise(replace(cost, total_s=35.1))
    assert not bench_hangs.keeps_promise(replace(cost, hung=0, total_s=1.0)), "nothing hung: nothing was shown"
    page = bench_hangs.describe(cost)
    for part in ("2 of 8 trials hang", "35.0 s (at most 35.0)", "2 of 10 s", "49.0 s (estimated: 8 x 3.0 s"):
        assert part in page


def test_the_timed_collectives_are_the_repetitions_of_all_trials() -> None:
    results = [{"took_s": 0.015}, {"took_s": 0.005}]
    assert bench_hangs.collectives_s({"trials": [{"results": results}, {"results": []}]}) == pytest.approx(0.02)
