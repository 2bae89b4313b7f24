"""The short forms, each read by somebody else's parser, for nodes of every blame class and with hostile names."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import jsonschema
import junitparser
import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

from preflight.model.facts import Gap
from preflight.model.finding import Blame
from preflight.model.report import Report, RunPhase, RunPhaseEnd, Verdict
from preflight.model.schema import report_schema
from preflight.show.drain_nagios_k8s import MOST_IN_DRAIN, render_drain, render_k8s, render_nagios
from preflight.show.formats import Format
from preflight.show.json_document import render_json
from preflight.show.junit import render_junit
from preflight.show.markdown_writer import render_markdown
from preflight.show.prometheus import render_prometheus
from preflight.show.render import render_as
from tests.node_facts import finding
from tests.reports import report_of
from tests.show.golden_reports import REPORTS
from tests.show.outputs import HOSTILE, every_report, hostile

ALL = every_report()
HOSTILE_ALL = {f"hostile {name}": hostile(report) for name, report in ALL.items()}
EVERY = ALL | HOSTILE_ALL
SCHEMA = jsonschema.Draft202012Validator(report_schema())
# What each class is to give: exit code, Nagios' word, the condition's status and reason.
ANSWERS = {
    Blame.APPLICATION: (3, "UNKNOWN", "Unknown", "CouldNotLook"),
    Blame.CONFIGURATION: (3, "UNKNOWN", "Unknown", "CouldNotLook"),
    Blame.CONTAINER: (3, "UNKNOWN", "Unknown", "CouldNotLook"),
    Blame.HOST: (1, "CRITICAL", "False", "TrialFailed"),
    Blame.GPU: (1, "CRITICAL", "False", "GpuRecovery"),
    Blame.FABRIC: (1, "CRITICAL", "False", "HcaPortStuck"),
    Blame.HARNESS: (3, "UNKNOWN", "Unknown", "CouldNotLook"),
}


def condition_of(report: Report) -> dict[str, Any]:
    (condition,) = yaml.safe_load(render_k8s(report))["status"]["conditions"]
    return dict(condition)


def metrics_of(report: Report) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    families = text_string_to_metric_families(render_prometheus(report))
    return {f.name: {tuple(sorted(s.labels.items())): s.value for s in f.samples} for f in families}


@pytest.mark.parametrize("blame", Blame)
def test_a_node_of_each_blame_class_gives_its_answer_in_every_form(blame: Blame) -> None:
    report = ALL[f"blame {blame.value}"]
    code, word, status, reason = ANSWERS[blame]
    assert report.exit_code == code
    assert render_nagios(report).startswith(f"PREFLIGHT {word} - ")
    assert (condition_of(report)["status"], condition_of(report)["reason"]) == (status, reason)
    assert metrics_of(report)["preflight_exit_code"] == {(): code}
    verdicts = metrics_of(report)["preflight_node_verdict"]
    assert verdicts[("verdict", "reject"),] == (code == 1)
    assert verdicts[("verdict", "accept"),] == 0
    drain = render_drain(report)
    assert drain.startswith(f"preflight node {'rejected' if code == 1 else 'unknown'}: ")
    suites = junitparser.JUnitXml.fromstring(render_junit(report).encode())
    assert (suites.failures > 0) == (code == 1 or blame in (Blame.CONFIGURATION, Blame.CONTAINER))
    assert (suites.errors > 0) == (code == 3)


def test_the_reason_of_a_rejected_node_names_what_to_repair_first() -> None:
    assert "the driver reports that the GPU needs a node reboot to recover" in render_drain(ALL["blame gpu"])
    assert "the link is up, but the port is INIT" in render_drain(ALL["blame fabric"])
    found = (finding(blame=Blame.APPLICATION, problem="a full disk"), finding(blame=Blame.GPU, problem="a dead GPU"))
    mixed = report_of(verdict=Verdict.NOT_READY, exit_code=1, headline="not ready: x", findings=found)
    assert render_drain(mixed) == "preflight not ready: node1: a dead GPU [a-check]; node1: a full disk [a-check]\n"


@pytest.mark.parametrize(
    ("name", "check", "reason"),
    [("below baseline", "baseline-missed", "BaselineMissed"), ("below floor", "policy-floor", "PolicyFloor")],
)
def test_a_node_below_a_baseline_or_a_floor_is_rejected_for_it_in_every_form(
    name: str, check: str, reason: str
) -> None:
    report = ALL[name]
    assert (report.exit_code, condition_of(report)["status"], condition_of(report)["reason"]) == (1, "False", reason)
    assert render_nagios(report).startswith("PREFLIGHT CRITICAL - ") and check in render_nagios(report)
    assert render_drain(report).startswith("preflight node rejected: ") and check in render_drain(report)
    assert junitparser.JUnitXml.fromstring(render_junit(report).encode()).failures == 2, "the verdict and the check"
    judge = {"below baseline": "baseline", "below floor": "policy"}[name]
    assert metrics_of(report)["preflight_speed_judge"] == {(("by", judge),): 1}
    for form in (Format.CONSOLE, Format.JSON, Format.HTML, Format.MARKDOWN):
        text = " ".join(render_as(form, report).split())
        assert (check in text and f"the {judge} " in text) or form is Format.JSON
    if name == "below baseline":
        assert render_as(Format.CONSOLE, report).count("0.8") >= 4, "every repetition is on the page"
        assert metrics_of(report)["preflight_baseline_ratio"][("collective", "all_reduce"), ("size_bytes", "1048576")]


def test_a_node_as_fast_as_good_ones_is_accepted_and_the_report_says_who_judged() -> None:
    report = ALL["like baseline"]
    assert report.exit_code == 0
    assert "golden.json: 9 good nodes; this one was measured 1 time" in render_as(Format.CONSOLE, report)


@pytest.mark.parametrize("form", Format)
def test_a_waiver_is_shown_in_every_form(form: Format) -> None:
    report = ALL["waived"]
    assert report.exit_code == 0, "it rejects nobody"
    text = " ".join(render_as(form, report).replace("# ", "").split())
    assert "hca-port-stuck" in text
    assert "waived" in text.lower() and ("2027-01-31" in text or form is Format.DRAIN)


@pytest.mark.parametrize("name", EVERY)
def test_junit_is_read_by_a_parser_and_its_counts_are_right(name: str) -> None:
    text = render_junit(EVERY[name])
    suites = junitparser.JUnitXml.fromstring(text.encode())
    told = (suites.tests, suites.failures, suites.errors)
    suites.update_statistics()  # type: ignore[no-untyped-call]
    assert told == (suites.tests, suites.failures, suites.errors)
    names = [suite.name for suite in suites]
    assert names[0] == "preflight.run" and len(set(names)) == len(names)
    for case in ET.fromstring(text).iter("testcase"):
        assert case.get("name") and case.get("classname") and float(case.get("time", "x")) >= 0


def test_every_check_is_a_test_case_that_passed_failed_was_skipped_or_could_not_look() -> None:
    report = ALL["blame gpu"]
    cases = {case.get("name"): case for case in ET.fromstring(render_junit(report)).iter("testcase")}
    assert {check.check for check in report.checks} <= {str(name).partition(":")[0] for name in cases}
    assert cases["gpu-mix"].find("failure") is None
    assert cases["gpu-recovery: node1 GPU 1 (0000:11:00.0)"].find("failure") is not None
    skipped = ET.fromstring(render_junit(ALL["warnings"]))
    ends = {case.get("name"): [child.tag for child in case] for case in skipped.iter("testcase")}
    assert ends["hostname-loopback"] == ["skipped"]
    assert ends["memlock"] == ["error"]


def test_a_candidate_that_failed_is_no_failure_where_another_one_works() -> None:
    def ends(name: str) -> list[str]:
        cases = ET.fromstring(render_junit(REPORTS[name]())).iter("testcase")
        return [
            child.tag for case in cases if str(case.get("classname")).startswith("preflight.trials") for child in case
        ]

    assert ends("one_interface_works") == ["skipped", "system-out", "skipped"]
    assert ends("nothing_works") == ["failure"] * 3


def test_a_part_that_was_cut_short_is_an_error_and_one_that_was_not_reached_is_skipped() -> None:
    phases = (
        RunPhase("probe", RunPhaseEnd.PARTIAL, "stopped by SIGINT"),
        RunPhase("trials", RunPhaseEnd.NOT_REACHED, "so"),
    )
    tree = ET.fromstring(render_junit(report_of(phases=phases)))
    ends = {case.get("name"): [child.tag for child in case] for case in tree.iter("testcase")}
    assert (ends["probe"], ends["trials"]) == (["error"], ["skipped"])


@pytest.mark.parametrize("name", EVERY)
def test_metrics_are_read_by_prometheus_own_parser(name: str) -> None:
    text = render_prometheus(EVERY[name])
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation and family.type == "gauge" for family in families)
    assert all(re.fullmatch(r"preflight_[a-z0-9_]+", family.name) for family in families)
    observed = [(s.name, *sorted(s.labels.items())) for family in families for s in family.samples]
    assert len(observed) == len(set(observed)), "a series that is there twice makes the whole file void"
    assert len(observed) == sum(not line.startswith("#") for line in text.splitlines())


def test_metrics_carry_base_units() -> None:
    metrics = metrics_of(ALL["healthy"])
    assert metrics["preflight_busbw_bytes_per_second"][
        ("candidate", "default"), ("collective", "all_reduce"), ("size_bytes", "1048576")
    ] == pytest.approx(1048576 / 800e-6)
    assert metrics["preflight_duration_seconds"][("phase", "total"),] == 2.81
    assert metrics["preflight_run_timestamp_seconds"][()] == 1791201600


@pytest.mark.parametrize("name", EVERY)
def test_the_condition_fits_kubernetes_own_schema(name: str) -> None:
    patch = yaml.safe_load(render_k8s(EVERY[name]))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, **patch}
    kubernetes_validate.validate(node, kubernetes_validate.latest_version(), strict=True)
    condition = condition_of(EVERY[name])
    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", condition["reason"])
    assert condition["status"] in ("True", "False", "Unknown")
    assert "\n" not in condition["message"] and len(condition["message"]) <= 1024


@pytest.mark.parametrize("name", EVERY)
def test_every_report_is_valid_by_the_published_schema(name: str) -> None:
    document = json.loads(render_json(EVERY[name]))
    assert list(SCHEMA.iter_errors(document)) == []


@pytest.mark.parametrize("name", EVERY)
def test_the_drain_reason_is_one_plain_short_line(name: str) -> None:
    text = render_drain(EVERY[name])
    assert text.endswith("\n") and len(text) <= MOST_IN_DRAIN + 1
    assert re.fullmatch(r"[A-Za-z0-9 ._:/+\-()\[\]%<>,;=@*]+", text[:-1])


def test_a_drain_reason_that_is_too_long_keeps_its_beginning() -> None:
    many = tuple(finding(subject=f"GPU {i}", problem="x" * 90) for i in range(9))
    text = render_drain(report_of(verdict=Verdict.NOT_READY, exit_code=1, findings=many))
    assert len(text) == MOST_IN_DRAIN + 1
    assert text.startswith("preflight not ready: GPU 0: xxx") and text.endswith("...\n")


@pytest.mark.parametrize("name", EVERY)
def test_the_nagios_line_has_one_bar_and_perfdata_that_can_be_read(name: str) -> None:
    text = render_nagios(EVERY[name])
    assert text.count("\n") == 1 and text.count("|") == 1 and not re.search("[<>]", text)
    assert re.match(r"PREFLIGHT (OK|WARNING|CRITICAL|UNKNOWN) - .", text)
    for item in text.partition("|")[2].split():
        assert re.fullmatch(r"'[A-Za-z0-9_]{1,}'=[0-9.e+]+s?;;;0", item), item


def test_a_warning_on_a_good_node_is_nagios_warning() -> None:
    assert render_nagios(ALL["warnings"]).startswith("PREFLIGHT WARNING - ")
    assert render_nagios(ALL["healthy"]).startswith("PREFLIGHT OK - ")


@pytest.mark.parametrize("name", EVERY)
def test_markdown_holds_no_html_link_or_image_of_others(name: str) -> None:
    kinds = set()
    for token in MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(render_markdown(EVERY[name])):
        kinds |= {token.type, *(child.type for child in token.children or ())}
    assert not kinds & {"html_inline", "html_block", "link_open", "image"}


@pytest.mark.parametrize("form", [form for form in Format if form is not Format.ENV])
@pytest.mark.parametrize("name", HOSTILE_ALL)
def test_nothing_from_outside_stays_invisible_in_any_form(form: Format, name: str) -> None:
    text = render_as(form, EVERY[name])
    assert all(char.isprintable() or char == "\n" for char in text)


@pytest.mark.parametrize("form", [Format.DRAIN, Format.K8S, Format.NAGIOS, Format.JUNIT, Format.MARKDOWN])
def test_a_simulated_run_is_called_one(form: Format) -> None:
    assert "SIMULATED" in render_as(form, ALL["simulated"])


@settings(max_examples=40, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_stays_inside_its_place_in_every_short_form(text: str) -> None:
    report = hostile(ALL["nothing_works"], text)
    kubernetes = condition_of(report)
    assert set(kubernetes) == {"type", "status", "reason", "message", "lastHeartbeatTime", "lastTransitionTime"}
    ET.fromstring(render_junit(report))
    list(text_string_to_metric_families(render_prometheus(report)))
    assert render_drain(report).count("\n") == render_nagios(report).count("\n") == 1


def test_a_report_without_an_end_time_that_can_be_read_leaves_the_times_out() -> None:
    report = report_of(created_at="yesterday", node_verdict=Gap("x"))
    assert set(condition_of(report)) == {"type", "status", "reason", "message"}
    assert "preflight_run_timestamp_seconds" not in metrics_of(report)
    junitparser.JUnitXml.fromstring(render_junit(report).encode())


def test_hostile_text_is_in_every_hostile_report() -> None:
    assert HOSTILE in HOSTILE_ALL["hostile accepted"].nodes[0].host
