"""The labelled logs beside the project: how often the first cause named is the true one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.explain.logs import cause_of, corpus

Need = Callable[[str, bool, str], None]


def test_the_first_cause_is_the_labelled_one(need: Need, capsys: pytest.CaptureFixture[str]) -> None:
    cases = corpus()
    need("corpus", bool(cases), "the corpus of labelled logs is not beside the project")
    named = {case.name: cause_of(case.data) for case in cases}
    table = Counter((case.label, named[case.name]) for case in cases)
    shares = {}
    with capsys.disabled():
        print(f"\n{'label':38} {'named':38} logs")
        for (label, cause), count in sorted(table.items()):
            print(f"{label:38} {'=' if cause == label else cause:38} {count:4}")
        for which, group in (("all", cases), ("confirmed", [case for case in cases if case.confirmed])):
            right = sum(case.accepts(named[case.name]) for case in group)
            exact = sum(case.label == named[case.name] for case in group)
            shares[which] = right / len(group)
            print(
                f"{which}: {right} of {len(group)} right ({right / len(group):.1%}); the label itself {exact / len(group):.1%}"
            )
    assert shares["confirmed"] >= 0.95
    assert shares["all"] >= 0.90


def test_no_cause_is_named_on_a_healthy_run(need: Need) -> None:
    cases = [case for case in corpus() if case.label == "healthy" and not case.also]
    need("corpus", bool(cases), "the corpus of labelled logs is not beside the project")
    assert [case.name for case in cases if cause_of(case.data) != "healthy"] == []
