"""No cause is named of a run that succeeded, whatever its ranks say at the start, in between and at the end."""

from __future__ import annotations

import pytest

from preflight.model.explanation import ExplainVerdict, Explanation
from tests.explain.logs import explain_bytes
from tests.explain.successes import END_NOISE, LAST_LINES, MIDDLE_NOISE, RUNS, START_NOISE, many, success_log

TEARDOWN = "teardown_after_success"
SEEDS = 40


def explain_text(text: str) -> Explanation:
    """Explain one log."""
    return explain_bytes(text.encode())


def named(text: str) -> list[str]:
    """Return the causes named, but the one that says that nothing failed."""
    return [cause.cause for cause in explain_text(text).causes if cause.cause != TEARDOWN]


def test_a_log_holds_the_marker_or_does_not() -> None:
    for run in RUNS:
        assert '"status": "success"' in success_log(run, 1)
        assert '"status": "success"' not in success_log(run, 1, end="evaluation", has_marker=False)


# How many kinds of successful logs get a cause today, or are not called healthy. Each has to become 0, none may rise.
NAMED_WITH_NOISE_EVERYWHERE = 0
NAMED_WITH_NOISE_AT_THE_START = 0
NAMED_WITH_NOISE_IN_THE_MIDDLE = 0
NOT_DONE_DESPITE_THE_MARKER = 0
NOT_DONE_WITH_NOISE_AT_THE_END = 0
NAMED_WHERE_COPIED_EARLY = 0
BOTH = (True, False)


@pytest.mark.integration
def test_no_cause_is_named_of_a_success_with_noise_everywhere() -> None:
    wrong = [(run, marked) for run in RUNS for marked in BOTH if any(map(named, many(run, marked, SEEDS)))]
    assert len(wrong) <= NAMED_WITH_NOISE_EVERYWHERE, wrong


def test_no_cause_is_named_for_noise_of_the_start() -> None:
    wrong = [
        (noise, marked)
        for noise in START_NOISE
        for marked in BOTH
        if any(named(success_log(run, 1, noise, has_marker=marked)) for run in RUNS)
    ]
    assert len(wrong) <= NAMED_WITH_NOISE_AT_THE_START, wrong


def test_no_cause_is_named_for_noise_that_the_run_survives() -> None:
    wrong = [
        (noise, marked)
        for noise in MIDDLE_NOISE
        for marked in BOTH
        if any(named(success_log(run, 1, middle=noise, has_marker=marked)) for run in RUNS)
    ]
    assert len(wrong) <= NAMED_WITH_NOISE_IN_THE_MIDDLE, wrong


def test_what_stands_above_the_marker_does_not_keep_the_run_from_counting_as_done() -> None:
    wrong = [
        noise
        for noise in [*START_NOISE, *MIDDLE_NOISE]
        if any(not is_done(success_log(run, 1, start=noise, middle=noise)) for run in RUNS)
    ]
    assert len(wrong) <= NOT_DONE_DESPITE_THE_MARKER, wrong


def test_after_the_marker_nothing_but_teardown_is_named_and_the_run_counts_as_done() -> None:
    wrong = []
    for noise in END_NOISE:
        found = [explain_text(success_log(run, 1, end=noise)) for run in RUNS]
        causes = [[cause.cause for cause in each.causes] for each in found]
        is_right = [
            names == [TEARDOWN] or (not names and each.verdict is ExplainVerdict.HEALTHY)
            for names, each in zip(causes, found, strict=True)
        ]
        wrong += [] if all(is_right) else [noise]
    assert len(wrong) <= NOT_DONE_WITH_NOISE_AT_THE_END, wrong


def test_a_log_that_was_copied_while_the_job_ran_has_no_cause() -> None:
    wrong = [n for n in LAST_LINES if any(named(success_log(run, 1, end=n, has_marker=False)) for run in RUNS)]
    assert len(wrong) <= NAMED_WHERE_COPIED_EARLY, wrong


def is_done(text: str) -> bool:
    """Tell whether a log is that of a run which succeeded."""
    return explain_text(text).verdict is ExplainVerdict.HEALTHY
