"""What of trials and of a tried directory reaches the timeout."""

from __future__ import annotations

import dataclasses

from preflight.model.collective import Collective
from preflight.model.facts import EnvVar, NcclConfEntry
from preflight.model.gap import Gap
from preflight.model.storage import StorageSpeed
from preflight.model.trial import RankTime
from preflight.timeout.timings import NO_DIRECTORY, NO_TRIAL, NO_VERIFIED, nccl_settings, timings
from tests.reports import MIB, failed_trial, node_facts, timed, trial_result

RANKS = (RankTime(0, 900.0, 1.0), RankTime(1, 1500.0, 1.7))


def test_the_slowest_verified_collective_at_the_largest_size_counts() -> None:
    slow = dataclasses.replace(timed(Collective.ALL_GATHER), p99_us=2500.0, ranks=RANKS)
    results = (dataclasses.replace(timed(size_bytes=8), p99_us=9e6), dataclasses.replace(timed(), p99_us=2000.0), slow)
    found = timings((trial_result(results=results, connect_us=40_000.0),), 2, None, {})
    assert (found.collective_s, found.collective_bytes, found.ranks) == (2.5e-3, MIB, 2)
    assert (found.connect_s, found.spread_s) == (0.04, 6e-4)


def test_wrong_data_and_failed_trials_say_nothing_of_speed() -> None:
    wrong = trial_result(results=(timed(verified=False),))
    found = timings((wrong, failed_trial()), 2, None, {})
    assert (found.collective_s, found.spread_s, found.ranks) == (NO_VERIFIED, NO_VERIFIED, 0)


def test_without_trials_or_a_directory_the_gaps_say_what_would_measure_it() -> None:
    found = timings(None, 0, None, {})
    assert found.collective_s == found.connect_s == NO_TRIAL
    assert found.write_one_bytes_per_s == found.read_one_bytes_per_s == NO_DIRECTORY


def test_a_directory_that_took_nothing_has_no_speed() -> None:
    failed = Gap("no space left on device")
    storage = StorageSpeed("/ckpt", 1, 0, 0.0, failed, 1e9, 1e9, 5.0, file_system="nfs4")
    found = timings(None, 0, storage, {})
    assert isinstance(found.write_one_bytes_per_s, Gap)
    assert found.write_all_bytes_per_s == failed
    assert (found.read_one_bytes_per_s, found.directory) == (1e9, "/ckpt (nfs4)")


def test_the_environment_comes_before_nccl_s_own_files_and_the_first_file_before_the_next() -> None:
    files = (
        NcclConfEntry("~/.nccl.conf", "NCCL_IB_TIMEOUT", "22"),
        NcclConfEntry("/etc/nccl.conf", "NCCL_IB_TIMEOUT", "23"),
        NcclConfEntry("/etc/nccl.conf", "NCCL_IB_RETRY_CNT", "3"),
    )
    node = node_facts(nccl_conf=files, environment=(EnvVar("NCCL_IB_RETRY_CNT", "5"),))
    assert nccl_settings(node) == {"NCCL_IB_TIMEOUT": "22", "NCCL_IB_RETRY_CNT": "5"}
