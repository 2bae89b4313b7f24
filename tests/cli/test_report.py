"""`preflight check --nproc 2 --profile quick --json -`: one document on stdout, with every key that others rely on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from preflight.model.codec import decode, encode
from preflight.model.report import Report
from tests.command import Ran, default_trial

REPORT_KEYS = {
    "schema_version", "verdict", "node_verdict", "exit_code", "simulated", "backend", "world_size", "nodes", "trials",
    "findings", "advice", "durations_s",
}  # fmt: skip
TRIAL_KEYS = {"candidate", "env", "trial_env", "outcome", "stages", "results"}
RESULT_KEYS = {"collective", "size_bytes", "median_us", "p95_us", "algbw_gb_s", "busbw_gb_s", "verified"}
FINDING_KEYS = {"check", "class", "severity", "subject", "problem", "fix", "evidence"}
ADVICE_KEYS = {"env", "unset", "pg_timeout_s", "init_timeout_s", "gpus"}
CLASSES = {"application", "configuration", "container", "host", "gpu", "fabric", "harness"}
TIMEOUTS = ("PREFLIGHT_PG_TIMEOUT_S", "PREFLIGHT_INIT_TIMEOUT_S", "DEEPSPEED_TIMEOUT")
SIZES = (8, 1 << 20)
BUS_FACTORS = {"all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: (n - 1) / n}


def results(ran: Ran) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ran.document["trials"][0]["results"]
    return found


def test_it_exits_0_with_one_json_document_on_stdout_and_nothing_else(healthy: Ran) -> None:
    assert healthy.code == 0, healthy.stdout + healthy.stderr
    assert healthy.stderr == ""
    document, end = json.JSONDecoder().raw_decode(healthy.stdout)
    assert isinstance(document, dict)
    assert healthy.stdout[end:] == "\n"
    assert healthy.stdout == (healthy.cwd / "preflight-report.json").read_text()


def test_every_key_that_others_may_rely_on_is_there(healthy: Ran) -> None:
    report = healthy.document
    assert report.keys() >= REPORT_KEYS
    for trial in report["trials"]:
        assert trial.keys() >= TRIAL_KEYS
        assert all(result.keys() >= RESULT_KEYS for result in trial["results"])
    assert all(finding.keys() >= FINDING_KEYS for finding in report["findings"])
    assert report["advice"].keys() >= ADVICE_KEYS
    gaps = [gap for node in report["nodes"] for gap in node["gaps"]]
    assert gaps, "a machine without a GPU has no driver, and that is a gap"
    assert all(gap.keys() == {"fact", "reason"} and gap["reason"] for gap in gaps)


def test_the_values_are_those_of_a_healthy_run_of_two_ranks_on_the_cpu(healthy: Ran) -> None:
    report = healthy.document
    trial = default_trial(report)
    assert (report["verdict"], report["exit_code"], report["node_verdict"]) == ("ready", 0, None)
    assert (report["simulated"], report["backend"], report["world_size"]) == (False, "gloo", 2)
    assert len(report["nodes"]) == 1
    assert (trial["candidate"], trial["env"], trial["outcome"]) == ("default", {}, "ok")
    assert isinstance(trial["trial_env"], dict)
    assert trial["stages"] == {"0": "done", "1": "done"}
    assert trial["started_by"] == "fork"
    assert trial["world_size_seen"] == {"0": 2, "1": 2}
    assert (report["advice"]["env"], report["advice"]["unset"], report["advice"]["gpus"]) == ({}, [], [])
    assert report["durations_s"] and all(seconds >= 0 for seconds in report["durations_s"].values())
    for finding in report["findings"]:
        assert finding["severity"] in ("warn", "info")
        assert finding["class"] in CLASSES
        assert all(evidence.keys() == {"what", "value", "source"} for evidence in finding["evidence"])


def test_all_reduce_and_all_gather_are_measured_and_verified_at_8_bytes_and_1_mib(healthy: Ran) -> None:
    measured = [(result["collective"], result["size_bytes"]) for result in results(healthy)]
    assert sorted(measured) == sorted((name, size) for name in BUS_FACTORS for size in SIZES)
    assert all(result["verified"] is True and result["wrong_elements"] == 0 for result in results(healthy))


def test_bandwidths_follow_nccl_tests_formulas_from_the_median(healthy: Ran) -> None:
    for result in results(healthy):
        algbw_gb_s = result["size_bytes"] / (result["median_us"] * 1e-6) / 1e9
        factor = BUS_FACTORS[result["collective"]](healthy.document["world_size"])
        assert 0 < result["min_us"] <= result["median_us"] <= result["p95_us"]
        assert result["algbw_gb_s"] == pytest.approx(algbw_gb_s, rel=1e-6)
        assert result["busbw_gb_s"] == pytest.approx(algbw_gb_s * factor, rel=1e-6)


def test_the_timeouts_of_report_and_env_are_the_same_and_rest_on_what_was_measured(healthy: Ran) -> None:
    advice, trial = healthy.document["advice"], default_trial(healthy.document)
    exported = dict(
        line[7:].split("=") for line in (healthy.cwd / "preflight.env").read_text().splitlines() if "=" in line[:40]
    )
    assert exported["PREFLIGHT_PG_TIMEOUT_S"] == f"'{advice['pg_timeout_s']}'" == "'600'"
    assert exported["PREFLIGHT_INIT_TIMEOUT_S"] == f"'{advice['init_timeout_s']}'" == "'600'"
    assert int(exported["DEEPSPEED_TIMEOUT"].strip("'")) * 60 >= advice["pg_timeout_s"]
    assert 0 < trial["connect_us"] < 10e6
    assert all(result["median_us"] <= result["p99_us"] for result in results(healthy))


def test_the_report_decodes_to_a_record_that_encodes_to_the_same_document(healthy: Ran) -> None:
    report = decode(Report, healthy.document)
    assert encode(report) == healthy.document
    assert decode(Report, encode(report)) == report


def test_the_env_of_an_earlier_run_is_replaced_and_no_run_directory_is_left(healthy: Ran) -> None:
    written = (healthy.cwd / "preflight.env").read_text()
    exported = [line.split("=")[0] for line in written.splitlines() if line and not line.startswith("#")]
    assert exported == [f"export {name}" for name in TIMEOUTS], "nothing of NCCL or gloo need be set"
    assert sorted(path.name for path in healthy.cwd.iterdir()) == ["preflight-report.json", "preflight.env"]
    assert list((healthy.cwd.parent / "tmp").iterdir()) == []
