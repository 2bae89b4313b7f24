"""Nobody is told that a run which failed is fine: not after healthy lines, and not where the log is cut."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.explain.explain_logs import Log, explain
from preflight.model.explanation import EXIT_CODES, ExplainVerdict
from scripts.score_explain import Case, cases, labelled_folders
from tests.corpus import CORPUS
from tests.explain.failing_ends import FAILING_ENDS, HEALTHY_HEADS
from tests.explain.logs import explain_bytes

Need = Callable[[str, bool, str], None]
# How many failed logs are called healthy today. Each of these numbers has to become 0, and none may rise until then.
HEALTHY_AFTER_HEADS = 0
HEALTHY_WHERE_CUT = 0
HEALTHY_BY_SHARE = {0.25: 0, 0.5: 0, 0.75: 0}
# Two jobs in one file, of which the first succeeded: up to its end nothing had failed.
FIRST_OF_TWO = frozenset({"hard/003"})


def test_the_ends_are_many_and_different() -> None:
    assert len(FAILING_ENDS) >= 44
    assert len(set(FAILING_ENDS.values())) == len(FAILING_ENDS)


def test_a_failing_end_after_healthy_lines_is_not_called_healthy() -> None:
    texts = ["\n".join((*head, *end)) + "\n" for head in HEALTHY_HEADS.values() for end in FAILING_ENDS.values()]
    assert sum(is_healthy(text.encode()) for text in texts) <= HEALTHY_AFTER_HEADS


def test_a_failing_end_whose_last_line_is_cut_is_not_called_healthy() -> None:
    cut = []
    for end in FAILING_ENDS.values():
        text = "\n".join((*HEALTHY_HEADS["transformers"], *end)).encode()
        cut.append(text[: len(text) - len(end[-1]) // 4])
    assert sum(map(is_healthy, cut)) <= HEALTHY_WHERE_CUT


@pytest.mark.parametrize("share", HEALTHY_BY_SHARE)
def test_a_failing_log_that_is_cut_is_not_called_healthy(share: float, need: Need) -> None:
    failing = [case for case in _labelled() if case.failed and case.name not in FIRST_OF_TWO]
    need("corpus", bool(failing), "the corpus of labelled logs is not beside the project")
    healthy = [case.name for case in failing if _verdict_of_cut(case, share) is ExplainVerdict.HEALTHY]
    assert len(healthy) <= HEALTHY_BY_SHARE[share], healthy


def is_healthy(text: bytes) -> bool:
    """Tell whether a log is called healthy, in the verdict or by the exit code."""
    explanation = explain_bytes(text)
    return explanation.verdict is ExplainVerdict.HEALTHY or explanation.exit_code == EXIT_CODES[ExplainVerdict.HEALTHY]


def _labelled() -> list[Case]:
    folders = [folder for name in ("logs", "fresh") for folder in labelled_folders(CORPUS / name)]
    return [case for folder in folders for case in cases(folder)]


def _verdict_of_cut(case: Case, share: float) -> ExplainVerdict:
    logs = []
    for file in case.files:
        data = _text_of(Path(file))
        logs.append(Log(Path(file).name, [data[: int(len(data) * share)]]))
    return explain(logs).verdict


def _text_of(path: Path) -> bytes:
    """Return a log as far as it can be read: some are packed, and cut themselves."""
    data = path.read_bytes()
    if path.suffix != ".gz":
        return data
    return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(data)
