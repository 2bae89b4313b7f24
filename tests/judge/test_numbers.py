"""docs/reference/numbers.md: each threshold that decides a check, why it is what it is, and what it costs if wrong."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from preflight.judge.check import Check, all_checks
from preflight.model.bound import Bound
from preflight.model.finding import Severity
from preflight.model.units import decimal_text, size_text
from tests.conftest import PROJECT
from tests.show.outputs import every_report

PAGE = PROJECT / "docs" / "reference" / "numbers.md"
PACKAGE = PROJECT / "preflight"
DEFINED = re.compile(r"^(\w+) = Bound\(", re.MULTILINE)
ADDRESS = re.compile(
    r"judgment|scripts/studies/\w+\.py|(?:docs|preflight|tests)/[\w./-]+( \d[\d.]*)?|.* \[unverified\]|https://\S+"
)
# Numbers of judge/ that decide no verdict: what is shown of a list, versions that a thread or a release names, units.
SHOWN = {"MOST_HOSTS", "MOST", "MOST_NAMED", "MOST_SHOWN", "MOST_ENDINGS_SHOWN", "MOST_CHARACTERS", "LATE", "TIMES"}
VERSIONS = {"WHEELS", "CURED_IN", "RIGHT_SINCE", "OLDEST_RUN", "NVLS_LOGGED_SINCE", "NVLS_CUDA"}
UNITS = {"HOUR_S", "IP_AND_ICMP_BYTES"}
RULES = {"LEAST_TO_JUDGE", "(RUNS, ENOUGH)"}  # of how many a check needs: docs/dev/method.md, docs/accept.md
OTHERS = (
    "These checks have no threshold in the table. Each check decides by a fact, by a comparison with half of a total "
    "(`shm-stale`: half of /dev/shm), by a [time limit](../dev/method.md#when-a-rank-hangs), or by the site's policy"
)
# The answers that no check gives, by the module that decides them.
ANSWERS = {
    "fleet/": "`fleet` names a node", "timeout/": "`timeout`", "trial/rank/step": "a trial hangs",
    "trial/nodes/wire": "a node is gone",
}  # fmt: skip
NUMBERS = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.Name, ast.operator, ast.unaryop, ast.expr_context)


def defined() -> dict[int, tuple[str, str]]:
    """Return the module and the name of every threshold of the package, by the identity of its record."""
    all_checks()
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PROJECT).with_suffix("").parts)
        for constant in DEFINED.findall(path.read_text(encoding="utf-8")):
            found[id(getattr(import_module(name), constant))] = (f"{path.relative_to(PACKAGE)}", constant)
    return found


def value_of(bound: Bound) -> str:
    if bound.unit.startswith("bytes/s"):
        return f"{decimal_text(bound.value)}{bound.unit.removeprefix('bytes')}"
    is_size = bound.unit.startswith("bytes")
    return f"{size_text(bound.whole)}{bound.unit.removeprefix('bytes')}" if is_size else f"{bound.value:g} {bound.unit}"


def page_of(checks: tuple[Check, ...]) -> str:
    where = defined()
    rows = ["| check | decides | reason | source | if it is wrong |", "|---|---|---|---|---|"]
    for check in checks:
        for bound in check.bounds:
            rows.append(row_of(f"`{check.name}`", bound, where[id(bound)]))
    others = ", ".join(f"`{check.name}`" for check in checks if not check.bounds)
    rows += [
        "",
        "## Other answers",
        "",
        "| answer | decides | reason | source | if it is wrong |",
        "|---|---|---|---|---|",
    ]
    rows += sorted(row_of(answer_of(where[id(bound)][0]), bound, where[id(bound)]) for bound in of_no_check(checks))
    return "\n".join([*rows, "", "## Checks without a threshold", "", f"{OTHERS}: {others}.", ""])


def row_of(answer: str, bound: Bound, place: tuple[str, str]) -> str:
    decides = f"{value_of(bound)}<br>`{place[1]}` in {place[0]}"
    return f"| {' | '.join((answer, decides, bound.reason, bound.source, bound.cost))} |"


def answer_of(file: str) -> str:
    return next(answer for start, answer in ANSWERS.items() if file.startswith(start))


def of_no_check(checks: tuple[Check, ...]) -> list[Bound]:
    """Return the thresholds that decide another answer than a check's."""
    named = {id(bound) for check in checks for bound in check.bounds}
    return [getattr(module_of(file), name) for at, (file, name) in defined().items() if at not in named]


def module_of(file: str) -> ModuleType:
    return sys.modules[f"preflight.{file.removesuffix('.py').replace('/', '.')}"]


def test_the_page_of_numbers_is_what_the_checks_name() -> None:
    text = PAGE.read_text(encoding="utf-8")
    head = text.partition("| check |")[0]
    page = head + page_of(all_checks())
    if os.environ.get("PREFLIGHT_GOLDEN") == "write":
        PAGE.write_text(page, encoding="utf-8")
        return
    assert text == page, "`make golden` writes it again"
    assert len(text.splitlines()) <= 100, "a table that a person reads"


def test_each_threshold_decides_a_check_or_another_answer_and_says_why_it_is_what_it_is() -> None:
    for bound in [*(bound for check in all_checks() for bound in check.bounds), *of_no_check(all_checks())]:
        assert all((bound.unit, bound.reason, bound.cost)), bound
        assert ADDRESS.fullmatch(bound.source), bound.source
        assert (path := re.match(r"(?:docs|scripts|preflight|tests)/\S+", bound.source)) is None or (
            PROJECT / path[0]
        ).exists(), bound.source


def numbers_of(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and all(isinstance(each, NUMBERS) for each in ast.walk(node.value)):
            constants = [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
            if any(isinstance(each, (int, float)) for each in constants):
                yield ast.unparse(node.targets[0])


@pytest.mark.parametrize("path", sorted((PACKAGE / "judge").rglob("*.py")), ids=lambda path: path.name)
def test_a_number_of_a_check_is_a_threshold_with_its_reason_or_decides_nothing(path: Path) -> None:
    assert set(numbers_of(path)) - SHOWN - VERSIONS - UNITS - RULES == set()


def test_every_check_that_failed_or_warned_in_a_report_is_followed_to_its_numbers() -> None:
    rows = PAGE.read_text(encoding="utf-8")
    against = {
        finding.check
        for report in every_report().values()
        for finding in report.findings
        if finding.severity in (Severity.FAIL, Severity.WARN)
    }
    bounds = {check.name: check.bounds for check in all_checks()}
    assert len(against & bounds.keys()) >= 10
    for name in against & bounds.keys():
        for bound in bounds[name]:
            assert f"| `{name}` | {value_of(bound)}<br>" in rows
        assert bounds[name] or f"`{name}`" in rows.partition("## Checks without a threshold")[2]
    assert against - bounds.keys() == {"shm-size"}, "a check that only these reports have"
