"""`preflight render`, `preflight schema` and `check --also`: files are whole, errors are one line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import junitparser
import pytest

from preflight.model.codec import decode
from preflight.model.report import Report
from preflight.show.formats import Format
from preflight.show.json_document import render_json
from preflight.show.render import render_as
from tests.command import Command, Ran
from tests.show.golden_reports import REPORTS

pytestmark = pytest.mark.heavy(6)

CHECK = ("check", "--backend", "gloo", "--nproc", "1")


def saved(command: Command, name: str = "healthy") -> Path:
    path = command.cwd / "r.json"
    path.write_text(render_json(REPORTS[name]()))
    return path


@pytest.mark.parametrize("form", [form for form in Format if form is not Format.CONSOLE])
def test_a_saved_report_is_rendered_in_every_form(command: Command, form: Format) -> None:
    ran = command.run("render", str(saved(command)), "--format", form.value)
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout == render_as(form, REPORTS["healthy"]())


def test_it_reads_stdin_and_writes_a_file_and_prints_a_page_by_default(command: Command) -> None:
    path = saved(command)
    with path.open() as stdin:
        ran = command.run("render", "-", "-f", "html", "-o", "page.html", stdin=stdin)
    assert (ran.code, ran.stdout, ran.stderr) == (0, "", "")
    assert (command.cwd / "page.html").read_text() == render_as(Format.HTML, REPORTS["healthy"]())
    assert command.run("render", str(path)).stdout.startswith("CPU path: gloo over 2 ranks")


def test_the_report_that_a_real_check_wrote_is_rendered_and_valid(command: Command, healthy: Ran) -> None:
    schema = command.run("schema")
    assert (schema.code, schema.stderr) == (0, "")
    jsonschema.validate(healthy.document, json.loads(schema.stdout))
    path = healthy.cwd / "preflight-report.json"
    page = command.run("render", str(path), "--format", "html")
    assert page.code == 0
    assert '<h2 id="h-trials">Trials' in page.stdout
    assert command.run("render", str(path), "--format", "env").stdout == (healthy.cwd / "preflight.env").read_text()


def test_a_real_check_names_its_parts_and_its_checks(healthy: Ran) -> None:
    report = decode(Report, healthy.document)
    assert [(phase.name, phase.end.value) for phase in report.phases] == [
        ("probe", "completed"), ("start of the ranks", "completed"), ("trials", "completed"), ("judging", "completed"),
    ]  # fmt: skip
    assert "memlock" in [check.check for check in report.checks]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "r.json: can't be read: no such file or directory"),
        ("", "r.json: not JSON: it is empty"),
        ("{", "r.json: not JSON: "),
        ('{"a": 1}', "r.json: no report: it has no 'schema_version'"),
        ('{"schema_version": 99}', "r.json: schema_version is 99, and this preflight reads 1"),
        ('{"schema_version": 1, "nodes": []}', "facts without a verdict"),
    ],
)
def test_what_is_no_report_is_a_usage_error_in_one_line(command: Command, content: str | None, message: str) -> None:
    if content is not None:
        (command.cwd / "r.json").write_text(content)
    ran = command.run("render", "r.json", "--format", "html")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1
    assert message in ran.stderr


def test_there_is_no_env_of_a_run_that_earned_none(command: Command) -> None:
    ran = command.run("render", str(saved(command, "nothing_works")), "--format", "env", "-o", "x.env")
    assert ran.code == 2
    assert "no .env to source: its exit code was 1 (not_ready)" in ran.stderr
    assert not (command.cwd / "x.env").exists()


def test_a_full_disk_is_3_and_an_unknown_form_is_2(command: Command) -> None:
    path = str(saved(command))
    full = command.run("render", path, "-o", "/dev/full")
    assert (full.code, full.stdout, full.stderr.count("\n")) == (3, "", 1)
    assert "no space left on device" in full.stderr
    assert command.run("render", path, "--format", "pdf").code == 2


@pytest.mark.integration
def test_also_writes_every_form_beside_the_report(command: Command, cpu_path: None) -> None:
    forms = [
        f"--also={form}=out.{form}" for form in ("junit", "html", "markdown", "prometheus", "nagios", "drain", "k8s")
    ]
    ran = command.run(*CHECK, *forms)
    assert (ran.code, ran.stderr) == (0, "")
    report = decode(Report, ran.report)
    for form in (
        Format.JUNIT,
        Format.HTML,
        Format.MARKDOWN,
        Format.PROMETHEUS,
        Format.NAGIOS,
        Format.DRAIN,
        Format.K8S,
    ):
        assert (command.cwd / f"out.{form.value}").read_text() == render_as(form, report)
    assert junitparser.JUnitXml.fromfile(str(command.cwd / "out.junit")).errors == 0
    assert not [path for path in command.cwd.iterdir() if path.name.startswith(".")]


@pytest.mark.integration
def test_a_form_that_cant_be_written_is_3_and_the_others_are_there(command: Command, cpu_path: None) -> None:
    ran = command.run(*CHECK, "--also", "junit=/dev/full", "--also", "drain=d")
    assert ran.code == 3
    assert ran.stderr.splitlines()[-1] == "preflight: /dev/full: could not be written: no space left on device"
    assert (command.cwd / "d").read_text().startswith("preflight ")
    assert "/dev/full: could not be written" in ran.report["problems"][0]
    assert ran.report["exit_code"] == 3


@pytest.mark.parametrize(
    ("also", "message"),
    [
        ("pdf=x", "give FORMAT=FILE, with one of console, junit"),
        ("junit", "give FORMAT=FILE"),
        ("junit=", "give a file"),
        ("junit=-", "stdout is for the page"),
        ("env=x", "--env-out"),
        ("json=x", "--report"),
        ("junit=preflight-report.json", "another result goes to preflight-report.json already"),
        ("junit=/nonexistent/x", "/nonexistent/x: can't be written"),
        ("junit=a\x1b[31m=", "can't be written"),
    ],
)
def test_an_also_that_makes_no_sense_is_a_usage_error_before_anything_runs(
    command: Command, also: str, message: str
) -> None:
    if also.startswith("junit=a"):
        os.mkdir(command.cwd / "a\x1b[31m=")
    ran = command.run(*CHECK, "--also", also)
    assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran.stderr
    assert message in ran.stderr
    assert "\x1b" not in ran.stderr
    assert not (command.cwd / "preflight-report.json").exists()


@pytest.mark.parametrize("line", ["--help", "nope", "render --help"])
def test_help_and_usage_errors_load_neither_reports_nor_what_makes_a_page(command: Command, line: str) -> None:
    """The help of one command loads that command, which knows reports and no library of a page."""
    ran = command.run(*line.split(), env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert ran.code == (2 if line == "nope" else 0)
    modules = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "preflight.cli.program" in modules
    assert not modules & {"preflight.show.html_report", "pygal", "jinja2", "xml.etree.ElementTree"}
    assert line == "render --help" or not modules & {"preflight.model.report", "preflight.show.formats"}
