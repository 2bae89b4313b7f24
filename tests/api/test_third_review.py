"""What the third review found of the Python API."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import preflight
from preflight.model.gap import Gap
from tests.command import OWN_PATH
from tests.reports import report_of, trial_result


def refusal(call: Any) -> str:
    """Return what a call is refused with; "" where it is not."""
    try:
        call()
    except preflight.UsageError as error:
        return str(error)
    return ""


def test_completion_in_a_fresh_python_shows_the_functions_and_nothing_of_the_inside() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import preflight; print(*dir(preflight))"], env={"PYTHONPATH": OWN_PATH},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    shown = {name for name in ran.stdout.split() if not name.startswith("_")}
    assert shown >= {"check", "probe", "explain", "safe_timeout", "pg_timeout", "Report"}
    assert not shown & {"os", "sys", "ModuleType", "LATE", "LONGEST_PG_TIMEOUT_S", "TYPE_CHECKING"}


def test_a_verdict_equals_its_word_as_that_of_explain_does() -> None:
    verdict: object = report_of().verdict
    assert verdict == "ready"


def test_a_report_in_a_notebook_is_a_page_and_no_dump_of_its_fields() -> None:
    report: Any = report_of(trials=tuple(trial_result(f"candidate-{number}") for number in range(8)))
    assert max(map(len, (repr(report), str(report)))) < 4000
    assert "<" in getattr(report, "_repr_html_", str)()


def test_a_model_s_size_is_a_number_as_well_as_a_text() -> None:
    size: Any = 7e9
    assert refusal(lambda: preflight.safe_timeout(size)) == ""


def test_a_misspelt_strategy_is_refused_with_those_that_there_are() -> None:
    assert "fsdp" in refusal(lambda: preflight.safe_timeout("7B", strategy="fdsp"))  # type: ignore[arg-type]


def test_nothing_to_explain_is_a_usage_error() -> None:
    assert refusal(lambda: preflight.explain([])) != ""


def test_a_refusal_names_the_argument_and_no_option_of_the_command() -> None:
    refused = refusal(lambda: preflight.check(gpus="99"))
    assert "gpus" in refused
    assert "--" not in refused


def test_what_could_not_be_read_is_false() -> None:
    assert not Gap("libnvidia-ml.so.1 was not found")
