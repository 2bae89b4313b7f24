"""The overview names the odd ones, and nobody for a figure that good nodes have too."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.fleet.digest import digest
from preflight.fleet.overview import overview
from preflight.model.codec import encode
from preflight.model.fleet import Fleet
from preflight.show.fleet import failing_hosts, fleet_page, odd_hosts, odd_reasons, render_host_list
from preflight.show.fleet_html import render_fleet_html
from preflight.show.text import Detail, Style
from tests.reports import report_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=20,
)
KEYS = (
    "nodes",
    "trials",
    "findings",
    "gpus",
    "results",
    "ranks",
    "pcie",
    "system",
    "software",
    "torch",
    "host",
    "gpu_tests",
    "p2p",
    "counters",
)
PAGE = Style(width=80, colour=False, unicode=True)


def report(host: str, chance: random.Random, **changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(encode(report_of()))
    document["nodes"][0]["host"] = host
    for result in document["trials"][0]["results"]:
        result["busbw_gb_s"] *= 1 + chance.gauss(0, 0.01)
    return document | changes


def fleet_of(count: int, **odd: dict[str, Any]) -> Fleet:
    chance = random.Random(3)
    documents = {f"n{i:03d}": report(f"n{i:03d}", chance) for i in range(count)}
    for host, changes in odd.items():
        documents[host] |= changes
    return overview((f"{host}.json", document, "") for host, document in documents.items())


def test_equal_nodes_are_all_alike() -> None:
    seen = fleet_of(50)
    assert (seen.exit_code, len(seen.passing), failing_hosts(seen)) == (0, 50, ())
    assert "ALL ALIKE" in fleet_page(seen).shown(Detail.ALL, PAGE)


def test_the_one_report_that_every_node_of_a_common_run_wrote_is_no_older_report() -> None:
    both = report("n0", random.Random(1))
    both["nodes"].append(copy.deepcopy(both["nodes"][0]) | {"host": "n1"})
    later = both | {"created_at": "2099-01-01T00:00:00+00:00"}
    seen = overview((f"{place}.json", both, "") for place in ("n0", "n1"))
    assert (seen.nodes, seen.replaced) == (2, ())
    seen = overview((path, each, "") for path, each in (("n0.json", both), ("n1.json", later)))
    assert [each.path for each in seen.replaced] == ["n0.json", "n0.json"]


def test_a_slow_node_is_named_with_its_figure_and_what_is_usual() -> None:
    slow = report("n007", random.Random(1))
    for result in slow["trials"][0]["results"]:
        result["busbw_gb_s"] *= 0.7
    seen = fleet_of(50, n007=slow)
    assert {odd.host for group in seen.groups for odd in group.odd} == {"n007"}
    assert seen.exit_code == 1 and "n007" not in seen.passing
    page = fleet_page(seen).shown(Detail.ALL, PAGE)
    assert "n007: slower in 4 of 4 speeds (median 29%); all_gather 1 MiB" in page and "usual:" in page


def test_another_driver_on_one_node_of_fifty_is_odd_and_on_half_of_them_is_drift() -> None:
    def with_kernel(host: str) -> dict[str, Any]:
        changed = report(host, random.Random(host))
        changed["nodes"][0]["system"]["kernel"] = "5.15.0"
        return changed

    one = fleet_of(50, n007=with_kernel("n007"))
    assert [(odd.host, odd.what, odd.value) for odd in one.groups[0].odd] == [("n007", "kernel", "5.15.0")]
    half = fleet_of(50, **{f"n{i:03d}": with_kernel(f"n{i:03d}") for i in range(25)})
    assert half.groups[0].odd == () and half.groups[0].drift[0].name == "kernel"
    assert "n[000-024]" in fleet_page(half).shown(Detail.ALL, PAGE)


def test_failing_and_unknown_nodes_are_told_apart() -> None:
    seen = fleet_of(6, n001={"verdict": "not_ready"}, n002={"verdict": "unknown"}, n003={"node_verdict": "reject"})
    assert [state.host for state in seen.failing] == ["n001", "n003"]
    assert [state.host for state in seen.unknown] == ["n002"]
    assert seen.passing == ("n000", "n004", "n005")
    assert render_host_list(failing_hosts(seen)) == "# n[001,003]\nn001\nn003\n"


def test_unknown_nodes_make_the_fleet_unknown_and_every_one_has_its_reason_in_words() -> None:
    cut = {"verdict": "unknown", "exit_code": 130, "headline": "unknown: stopped by SIGINT at trial default"}
    seen = fleet_of(3, n000=cut, n001=cut, n002=cut)
    assert (seen.exit_code, seen.passing, seen.interrupted) == (3, (), ("n000", "n001", "n002"))
    page = fleet_page(seen).shown(Detail.ALL, PAGE)
    assert page.startswith("UNKNOWN") and "stopped by SIGINT at trial default" in " ".join(page.split())
    assert "Nodes whose check was interrupted: 3 (n[000-002])" in " ".join(page.split())
    assert fleet_of(3, n000=cut).exit_code == 3
    assert fleet_of(3, n000=cut, n001={"verdict": "not_ready"}).exit_code == 1


def test_a_rejected_node_has_the_problem_of_its_finding_as_its_reason() -> None:
    finding = {"check": "p2p-data", "severity": "fail", "subject": "GPU 1 and 2", "problem": "3 elements are wrong"}
    rejected = fleet_of(2, n001={"node_verdict": "reject", "findings": [finding], "headline": "node reject: it"})
    assert rejected.failing[0].reasons == ("p2p-data: GPU 1 and 2: 3 elements are wrong",)
    bare = fleet_of(2, n001={"node_verdict": "reject", "findings": [], "headline": ""})
    assert bare.failing[0].reasons == ("reject, without a reason in the report",)


def test_a_run_that_was_interrupted_passes_nobody_however_far_it_came() -> None:
    seen = fleet_of(3, n000={"exit_code": 143})
    assert seen.passing == ("n001", "n002")
    assert seen.unknown[0].reasons[0] == "interrupted before it finished"


def test_a_simulated_report_passes_nobody_and_replaces_no_real_one() -> None:
    chance = random.Random(1)
    real = report("n1", chance, created_at="2026-01-01T00:00:00+00:00", verdict="not_ready")
    simulated = report("n1", chance, created_at="2026-02-01T00:00:00+00:00", simulated=True)
    for order in ((real, simulated), (simulated, real)):
        seen = overview((("real.json" if each is real else "sim.json"), each, "") for each in order)
        assert ([each.host for each in seen.failing], seen.simulated) == (["n1"], ())
        assert [(each.path, each.reason) for each in seen.replaced] == [
            ("sim.json", "simulated, and a real report of n1 is real.json")
        ]
    alone = overview([("sim.json", simulated, "")])
    assert (alone.passing, alone.simulated, alone.exit_code) == ((), ("n1",), 3)
    assert "SIMULATED" in fleet_page(alone).shown(Detail.ALL, PAGE)


def test_what_a_run_in_the_shadow_rejects_is_shown_apart_with_its_reason() -> None:
    shadow = {"node_verdict": "reject", "shadow": True, "headline": "node reject: GPU 3 is lost", "findings": []}
    seen = fleet_of(6, n001=shadow, n002={"shadow": True}, n003={"node_verdict": "reject"})
    assert [(each.host, each.reasons) for each in seen.would_drain] == [("n001", ("node reject: GPU 3 is lost",))]
    assert (failing_hosts(seen), seen.exit_code) == (("n003",), 1)
    assert "n002" in seen.passing and "n001" not in seen.passing
    assert fleet_of(6, n001=shadow).exit_code == 1
    for page in (fleet_page(seen).shown(Detail.ALL, PAGE), render_fleet_html(seen)):
        assert "Would have been drained (--shadow)" in page and "GPU 3 is lost" in page


def test_an_odd_node_is_not_a_failing_one_and_has_its_reason_in_the_list() -> None:
    slow = report("n007", random.Random(1))
    for result in slow["trials"][0]["results"]:
        result["busbw_gb_s"] *= 0.7
    seen = fleet_of(50, n007=slow)
    assert failing_hosts(seen) == ()
    listed = render_host_list(sorted(odd_hosts(seen)), odd_reasons(seen))
    first, reason, host, end = listed.split("\n")
    assert (first, host, end) == ("# n007", "n007", "")
    assert (
        reason.startswith("# n007: slower in 4 of 4 speeds (median 29%); all_gather 1 MiB")
        and "but other nodes have" in reason
    )


def test_a_reason_of_several_lines_is_one_comment() -> None:
    listed = render_host_list(["n1"], {"n1": "first\nn2\rn3"})
    assert [line.startswith("#") for line in listed.splitlines()] == [True, True, False]


def test_too_few_nodes_accuse_nobody() -> None:
    seen = fleet_of(4)
    assert "too few" in seen.groups[0].problem and seen.groups[0].odd == ()


def test_only_the_newest_report_of_a_host_counts() -> None:
    chance = random.Random(1)
    old = report("n1", chance, created_at="2026-01-01T00:00:00+00:00", verdict="not_ready")
    new = report("n1", chance, created_at="2026-02-01T00:00:00+00:00")
    for order in ((old, new), (new, old)):
        seen = overview((("old.json" if each is old else "new.json"), each, "") for each in order)
        assert (seen.nodes, seen.failing, [each.path for each in seen.replaced]) == (1, (), ["old.json"])


def test_what_is_no_report_is_listed_and_nothing_read_is_unknown() -> None:
    seen = overview([("a.json", {"x": 1}, ""), ("b.json", None, "empty")])
    assert [each.path for each in seen.unread] == ["a.json", "b.json"]
    assert seen.exit_code == 3
    assert "NOTHING READ" in fleet_page(seen).shown(Detail.ALL, PAGE)


@given(JSON)
def test_any_json_is_a_report_or_our_error(document: object) -> None:
    try:
        digest("x", document)
    except MalformedInput as error:
        assert "x" in str(error)


@settings(max_examples=300)
@given(st.data())
def test_a_report_with_any_part_replaced_never_raises_another_error(data: st.DataObject) -> None:
    text = json.dumps(report("n1", random.Random(1)))
    document = json.loads(text)
    for key in data.draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)):
        _replace(document, key, data.draw(JSON))
    try:
        fleet_page(overview([("x", document, "")] * 6)).shown(Detail.ALL, PAGE)
    except MalformedInput as error:
        pytest.fail(f"the overview lists what it can't read: {error}")


def _replace(value: object, key: str, new: object) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == key:
                value[name] = new
            else:
                _replace(inner, key, new)
    elif isinstance(value, list):
        for inner in value:
            _replace(inner, key, new)


def test_what_was_measured_below_nccl_is_compared_too_the_worst_of_each() -> None:
    speed = {"by": "sm", "direction": "a_to_b", "size_bytes": 64 << 20, "gb_s": 300.0}
    copies = [{"direction": "h2d", "is_near": True, "gb_s": 55.0}]
    tests = [
        {"repetition": turn, "gemms": [{"dtype": "bfloat16", "tflop_s": tflop_s}], "copies": copies}
        for turn, tflop_s in ((0, 700.0), (0, 650.0), (1, 1.0))
    ]
    changes: dict[str, Any] = {
        "gpu_tests": tests,
        "p2p": [{"repetition": 0, "speeds": [speed, speed | {"direction": "both", "gb_s": 1.0}]}],
        "counters": [
            {"name": "replays", "kind": "repaired", "grown": 7},
            {"name": "tx", "kind": "traffic", "grown": 9},
        ],
    }
    (node,) = digest("n.json", report("n1", random.Random(1), **changes))
    assert node.metrics["GEMM bfloat16 TFLOP/s"] == 650.0
    assert node.metrics["h2d near NUMA GB/s"] == 55.0
    assert node.metrics["peer copy sm 64 MiB GB/s"] == 300.0
    assert node.metrics["grown replays count"] == 7 and "grown tx count" not in node.metrics


@pytest.mark.parametrize("value", [[], {}, "x", 10**400, -1, None, [{"repetition": 0, "copies": [{"is_near": []}]}]])
def test_odd_parts_below_nccl_are_figures_less(value: object) -> None:
    odd = dict.fromkeys(("gpu_tests", "p2p", "counters"), value)
    (node,) = digest("n.json", report("n1", random.Random(1), **odd))
    assert all(isinstance(each, float) for each in node.metrics.values())


def test_every_page_shows_how_the_checks_of_all_nodes_ended_in_five_ways() -> None:
    endings = ("passed", "found", "could_not_look", "not_applicable", "not_run")
    checks = [{"check": f"c-{ending}", "outcome": ending} for ending in endings]
    fleet = fleet_of(6, n001={"checks": checks}, n002={"checks": [*checks, {"check": 3, "outcome": []}]})
    words = "2 found, 2 inconclusive, 2 not applicable, 2 not run; inconclusive: c-could_not_look on 2 nodes"
    for page in (
        fleet_page(fleet).shown(Detail.ALL, PAGE),
        fleet_page(fleet).shown(Detail.SCREEN, PAGE),
        render_fleet_html(fleet),
    ):
        assert words in " ".join(page.split())
    assert dict(next(each.ends for each in fleet.checks if each.check == "c-not_run")) == {
        "passed": 0, "found": 0, "could_not_look": 0, "not_applicable": 0, "not_run": 2,
    }  # fmt: skip
    assert not fleet_of(5).checks or "Checks of all nodes" in fleet_page(fleet_of(5)).shown(Detail.ALL, PAGE)


def test_a_figure_that_is_nought_on_every_gpu_is_one_and_what_was_not_read_is_none() -> None:
    facts = encode(report_of())["nodes"][0]
    cold, unread = ({**facts, "gpus": [{"temperature_c": celsius}]} for celsius in (0, None))
    digests = [digest("n.json", report("n1", random.Random(1), nodes=[each]))[0] for each in (cold, unread)]
    assert [each.metrics.get("hottest GPU C") for each in digests] == [0.0, None]


def test_a_count_below_the_usual_is_no_fault_and_one_above_it_is() -> None:
    def replays(count: int) -> dict[str, Any]:
        return {"counters": [{"name": "replays", "kind": "repaired", "grown": count}]}

    usual = {f"n{i:03d}": replays(100_000) for i in range(20)}
    fleet = fleet_of(20, **usual | {"n003": replays(0), "n004": replays(100_000_000)})
    assert odd_hosts(fleet) == {"n004"}


def test_a_node_that_lost_an_nvlink_differs_from_the_others() -> None:
    def with_links(active: int) -> dict[str, Any]:
        facts = encode(report_of())["nodes"][0]
        links = [{"link": link, "is_active": link < active} for link in range(18)]
        return {"nodes": [{**facts, "gpus": [{"nvlinks": links}]}]}

    hosts = {f"n{i:03d}": with_links(17 if i == 3 else 18) for i in range(10)}
    for host, changes in hosts.items():
        changes["nodes"][0]["host"] = host
    (group,) = fleet_of(10, **hosts).groups
    assert [(odd.host, odd.what) for odd in group.odd] == [("n003", "NVLinks active")]
