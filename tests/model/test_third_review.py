"""What the third review found of the numbers, mended. All that is drawn is drawn from a seed."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from preflight.errors import UsageError
from preflight.explain.explain_files import explain_paths
from preflight.fleet.baseline import learn
from preflight.fleet.digest import NodeDigest
from preflight.fleet.known_good import learn_from
from preflight.fleet.outliers import compare_nodes
from preflight.fleet.overview import overview
from preflight.judge.run.busbw_low import busbw_low
from preflight.model.baseline import FALSE_REJECTIONS, MOST_REPEATS, Baseline, Point, judge_node
from preflight.model.codec import encode
from preflight.model.collective import Collective
from preflight.model.finding import Finding, Severity
from preflight.model.profile import Profile
from preflight.model.report import Report
from preflight.model.trial import DEFAULT, CollectiveResult, Control, Outcome, Rerun
from preflight.search.gpus.link_speeds import expected_busbw
from preflight.search.profiles import sizes, trial_measures
from preflight.search.settings.control import Proof, intermittent, proof_of
from preflight.search.settings.steps import Known
from preflight.show.baseline import baseline_page
from preflight.show.text import Detail, Style
from preflight.system.links import load_links
from preflight.trial.rank.buffers import Ranks, allocate
from preflight.trial.rank.verify import TimedVerification, count_wrong
from tests.node_facts import GIB, MIB, gpu_case, gpu_node, result, trial
from tests.reports import node_facts, report_of, trial_result
from tests.search.flapping import SETTINGS, Flapping
from tests.search.searching import search

CPU = torch.device("cpu")
BILLION = 10**9


def test_a_faultless_sum_is_right_in_whatever_order_thousands_of_ranks_are_summed() -> None:
    count = 4096

    def verification(rank: int) -> tuple[TimedVerification, torch.Tensor]:
        ranks = Ranks(rank, count, CPU)
        buffers = allocate(Collective.ALL_REDUCE, 40 << 10, ranks)
        made = TimedVerification(Collective.ALL_REDUCE, buffers, ranks, frozenset((0,)), seed=7)
        work = made.work_before(0)
        assert work is not None
        work()
        return made, buffers.receive

    (first, received), *others = map(verification, range(count))
    parts = [received.clone(), *(sent for _, sent in others)]
    while len(parts) > 1:  # pair by pair, as a tree does
        parts = [sum(parts[i : i + 2][1:], parts[i]) for i in range(0, len(parts), 2)]
    received.copy_(parts[0])
    first.finish()
    assert first.found[:2] == (1, 0)


LARGE_AND_SMALL: list[Point] = [(Collective.ALL_REDUCE, 1 << shift) for shift in (10, 15, 24, 27, 30)]


def measurement(chance: random.Random, factor: float, within: float = 0.005) -> dict[Point, float]:
    """Return what a node measures that is faster by this share."""
    return {point: 300 * math.exp(factor + chance.gauss(0, within)) for point in LARGE_AND_SMALL}


def learnt(chance: random.Random, nodes: int, times: int) -> Baseline:
    """Return the baseline of nodes that differ by 1%."""
    factors = [chance.gauss(0, 0.01) for _ in range(nodes)]
    return learn((), {f"n{i}": [measurement(chance, each) for _ in range(times)] for i, each in enumerate(factors)})


def is_rejected(baseline: Baseline, measured: Sequence[dict[Point, float]]) -> bool:
    """Return whether a node is below once it has been measured as often as it may be, if it looks slow so often."""
    for times in range(1, MOST_REPEATS + 1):
        if not any(each.is_suspicious for each in judge_node(baseline, measured[:times])):
            return False
    return any(each.is_below for each in judge_node(baseline, measured))


@pytest.mark.parametrize("share", [0.8, 0.6])
def test_one_disturbed_measurement_of_four_rejects_nobody(share: float) -> None:
    baseline = learnt(random.Random(11), nodes=20, times=3)
    usual = dict.fromkeys(LARGE_AND_SMALL, 300.0)
    assert not is_rejected(baseline, [dict.fromkeys(LARGE_AND_SMALL, share * 300.0), *[usual] * MOST_REPEATS])


def test_a_baseline_that_would_reject_a_node_that_it_was_learnt_from_names_it() -> None:
    chance = random.Random(4)

    def measured(host: str, median_us: float) -> Report:
        one = trial_result(median_us=median_us * chance.gauss(1, 0.005))
        return report_of(nodes=(node_facts(host=host),), trials=(one,))

    slow = [measured(f"slowpoke{i}", 900) for i in range(4) for _ in range(3)]
    reports = [measured(f"n{i}", 800) for i in range(16) for _ in range(3)] + slow
    known = learn_from((f"{i}.json", encode(each), "") for i, each in enumerate(reports))
    assert "slowpoke" in baseline_page(known, "golden.json").shown(Detail.ALL, Style(width=100))


def test_a_baseline_of_five_nodes_rejects_as_few_good_ones_as_promised_or_is_none() -> None:
    chance, rejected, baselines, nodes = random.Random(3), 0, 400, 8
    for _ in range(baselines):
        try:
            baseline = learnt(chance, nodes=5, times=1)
        except UsageError:
            return  # too few, it says
        for _ in range(nodes):
            factor = chance.gauss(0, 0.01)
            rejected += is_rejected(baseline, [measurement(chance, factor) for _ in range(1 + MOST_REPEATS)])
    assert rejected / (baselines * nodes) <= 2 * FALSE_REJECTIONS.value


LINKS = load_links()
NVLS = ("0>1 via P2P/CUMEM", "network Socket", "NVLS")


def bandwidth(*results: CollectiveResult) -> list[Finding]:
    """Return what is said of 8 x H100 with NVLS, healthy at 465 to 480 GB/s, that measured this."""
    tried = trial(world_size=8, results=results, transport=NVLS)
    case = gpu_case(tried, nodes=(gpu_node(8),), links=LINKS, world_size=8, gpus=tuple(range(8)))
    return list(busbw_low.judge(case))


@pytest.mark.parametrize(("gb_s", "severity"), [(220.0, Severity.WARN), (110.0, Severity.FAIL)])
def test_half_of_what_nvlink_gives_is_a_warning_and_a_quarter_a_failure(gb_s: float, severity: Severity) -> None:
    found = bandwidth(replace(result(Collective.ALL_REDUCE, GIB, (1000.0,) * 8), busbw_gb_s=gb_s))
    assert [each.severity for each in found] in ([severity], [Severity.FAIL])


HANG, OK = Outcome.HANG, Outcome.OK


def test_a_fault_in_five_of_six_runs_that_none_of_six_has_with_the_setting_is_cured_by_it() -> None:
    """Fisher: 7 of 924, less than the 1 of 70 that counts as proved where all of the default's runs fail."""
    env = (("NCCL_P2P_DISABLE", "1"),)
    ends = [HANG, HANG, HANG, OK, HANG, HANG]
    turns = [
        (Rerun(DEFAULT, (), each, "", 20.0, "cure", 6), Rerun("cure", env, OK, "", 7.0, "cure", 6)) for each in ends
    ]
    control = Control(4711, 6, "cure", env, tuple(itertools.chain(*turns)))
    assert proof_of(control, (trial(outcome=HANG), trial("cure", env=env))) is Proof.PROVED


@pytest.mark.parametrize("failures", [2, 4])
def test_a_fault_of_the_first_trials_only_is_not_called_steady(failures: int) -> None:
    machine = Flapping(lambda number, _: number < failures, HANG, random.Random(1))
    done = search(SETTINGS, machine.run, known=Known(seed=1, left_s=800.0), runs_each=4)
    assert intermittent(done.results, done.control.reruns) != ()


def test_one_collective_alone_names_no_rank_as_the_slow_one() -> None:
    """Behind a slow link the rank after it is late in all_gather: 1.39 times the others where rank 2 is slow."""
    own_us = tuple(14_000.0 if rank == 3 else 10_000.0 for rank in range(8))
    (found,) = bandwidth(replace(result(Collective.ALL_GATHER, GIB, own_us), busbw_gb_s=100.0))
    assert "rank 3 is the slow one" not in found.problem


def test_a_baseline_keeps_the_software_that_it_was_learnt_with() -> None:
    chance = random.Random(4)
    trials = [(trial_result(median_us=chance.gauss(800, 8)),) for _ in range(12)]
    reports = [report_of(nodes=(node_facts(host=f"n{i}"),), trials=each) for i, each in enumerate(trials)]
    known = learn_from((f"{i}.json", encode(each), "") for i, each in enumerate(reports))
    assert "2.13.0+cpu" in str(encode(known.baseline))


def test_standard_sees_wrong_data_in_one_of_twenty_large_calls_nine_times_of_ten() -> None:
    measures = trial_measures(Profile.STANDARD, sizes(Profile.STANDARD, True, 64 * GIB))
    verified = sum(each.verified_calls for each in measures if each.nominal_bytes >= 64 * MIB)
    assert 1 - 0.95**verified >= 0.9


def test_a_copy_that_loses_the_lowest_byte_of_every_word_is_seen() -> None:
    ranks = Ranks(0, 1, CPU)
    buffers = allocate(Collective.BROADCAST, 64 << 10, ranks)

    def lossy() -> None:
        buffers.receive.copy_(buffers.send)
        buffers.receive.view(torch.int32).bitwise_and_(-256)

    assert count_wrong(Collective.BROADCAST, buffers, ranks, lossy) > 0


def reported(host: str, chance: random.Random) -> dict[str, Any]:
    """Return the report of a node like others."""
    document: dict[str, Any] = copy.deepcopy(encode(report_of()))
    document["nodes"][0]["host"] = host
    for each in document["trials"][0]["results"]:
        each["busbw_gb_s"] *= 1 + chance.gauss(0, 0.01)
    return document


def test_a_node_whose_tenth_call_takes_ten_times_as_long_is_odd_in_its_fleet() -> None:
    chance = random.Random(3)
    documents = {f"n{i:03d}": reported(f"n{i:03d}", chance) for i in range(50)}
    for each in documents["n007"]["trials"][0]["results"]:
        each["p95_us"] = 10 * each["median_us"]
        each["spread"] = 9.0
    seen = overview((f"{host}.json", document, "") for host, document in documents.items())
    assert {odd.host for group in seen.groups for odd in group.odd} == {"n007"}


def healthy_fleet(chance: random.Random, nodes: int) -> list[NodeDigest]:
    """Return healthy nodes: a slowest rank is the largest of eight, a slowest GPU the least of eight."""

    def metrics() -> dict[str, float]:
        node = chance.gauss(0, 0.01)
        found = {}
        for name, size in itertools.product(("all_reduce", "all_gather"), range(16)):
            noise = 0.04 if size < 8 else 0.005
            late = 0.05 if size < 8 else 0.02
            found[f"{name} {8 * 4**size} busbw GB/s"] = math.exp(5 + node + chance.gauss(0, noise))
            found[f"{name} {8 * 4**size} slowest rank"] = math.exp(max(abs(chance.gauss(0, late)) for _ in range(8)))
        for name in ("GEMM float32 TFLOP/s", "h2d near NUMA GB/s"):
            found[name] = math.exp(4 + min(chance.gauss(0, 0.012) for _ in range(8)))
        return found

    made = NodeDigest("", "", "", "ready", "", (("GPUs", "8"),), {}, {}, (), False, False, False, ())
    return [replace(made, path=f"{i}.json", host=f"n{i:03}", metrics=metrics()) for i in range(nodes)]


def test_healthy_nodes_are_called_odd_in_few_fleets() -> None:
    chance = random.Random(200)
    assert sum(bool(compare_nodes(healthy_fleet(chance, 200))[0].odd) for _ in range(8)) <= 2  # 5% are promised


def test_where_all_ranks_but_one_agree_that_one_is_named(tmp_path: Path) -> None:
    for rank in range(8):
        name = "nccl:broadcast" if rank == 3 else "nccl:all_reduce"
        entry = {"collective_seq_id": 7, "process_group": ("0", "default_pg"), "profiling_name": name, "is_p2p": False}
        entry |= {"state": "scheduled", "input_sizes": [[1024]], "frames": []}
        dump = {"version": "2.10", "entries": [entry], "pg_config": {"0": {"name": "0"}}}
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    cause = explain_paths([str(tmp_path)]).causes[0]
    assert "3" in cause.verdict
    assert re.search(r"ranks? 0\b", cause.verdict) is None


def test_the_upper_end_of_what_is_expected_shrinks_with_the_size_as_the_lower_one_does() -> None:
    ends = [
        expected_busbw(LINKS, gpu_node(8), range(8), Collective.ALL_REDUCE, size, trial(transport=NVLS).transport)
        for size in (MIB, GIB)
    ]
    assert ends[0].low_gb_s < 0.5 * ends[1].low_gb_s
    assert ends[0].high_gb_s < 0.9 * ends[1].high_gb_s
