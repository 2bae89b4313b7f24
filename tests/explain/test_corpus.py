"""The labelled logs beside the project: how often the first cause named is the true one."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

import pytest

from tests.explain.logs import Case, cause_of, corpus, explain_bytes

Need = Callable[[str, bool, str], None]


def test_the_first_cause_is_the_labelled_one(need: Need, capsys: pytest.CaptureFixture[str]) -> None:
    cases = corpus()
    need("corpus", bool(cases), "the corpus of labelled logs is not beside the project")
    named = {case.name: _answer(case) for case in cases}
    with capsys.disabled():
        sys.stdout.write(_table(cases, named))
    for which, least in ((cases, 0.90), ([case for case in cases if case.confirmed], 0.95)):
        assert sum(case.accepts(named[case.name]) for case in which) / len(which) >= least
        assert sum(case.label == named[case.name] for case in which) / len(which) >= least


def _answer(case: Case) -> str:
    """Return the answer in the words of the labels, which know no run that is healthy so far."""
    answer = cause_of(case.data)
    return "healthy" if answer == "unfinished" and case.accepts("healthy") else answer


def _table(cases: list[Case], named: dict[str, str]) -> str:
    """Return the confusion table, `=` for the label itself."""
    lines = ["", f"{'label':36} {'named':36} logs"]
    for (label, cause), count in sorted(Counter((case.label, named[case.name]) for case in cases).items()):
        lines.append(f"{label:36} {'=' if cause == label else cause:36} {count:4}")
    for which, group in (("all", cases), ("confirmed", [case for case in cases if case.confirmed])):
        exact = sum(case.label == named[case.name] for case in group) / len(group)
        right = sum(case.accepts(named[case.name]) for case in group) / len(group)
        lines.append(
            f"{which}: {len(group)} logs, the label {exact:.1%}, the label or an accepted neighbour {right:.1%}"
        )
    return "\n".join(lines) + "\n"


def test_no_cause_is_named_on_a_healthy_run(need: Need) -> None:
    cases = [case for case in corpus() if case.label == "healthy" and not case.also]
    need("corpus", bool(cases), "the corpus of labelled logs is not beside the project")
    assert [case.name for case in cases if explain_bytes(case.data).causes] == []
