"""A text of an error is one row, which `explain`, the checks and the search know alike."""

from __future__ import annotations

import pytest

from preflight.explain.cause import all_causes
from preflight.judge import symptoms
from preflight.model.error_texts import TEXTS, any_of
from preflight.model.trial import Outcome, RankEnd
from preflight.search.settings.suspicion import WORDS, suspected_families
from tests.explain.logs import cause_of
from tests.node_facts import trial

SIGNS = {sign.name: sign.pattern for cause in all_causes() for sign in cause.signs}


@pytest.mark.parametrize(
    ("line", "cause", "rows", "family"),
    [
        (
            "node1:7:9 [0] misc/ibvwrap.cc:113 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
            "ib_broken", symptoms.MEMLOCK, "ib",
        ),
        (
            "node1:7:9 [0] misc/shmutils.cc:72 NCCL WARN Call to posix_fallocate failed : No space left on device",
            "shm_too_small", symptoms.SHM, "shm",
        ),
    ],
)  # fmt: skip
def test_one_row_is_a_sign_a_proof_and_a_suspicion(line: str, cause: str, rows: tuple[str, ...], family: str) -> None:
    failed = trial(outcome=Outcome.INIT_ERROR, ranks=(RankEnd(0, "error", "init", line),))
    assert cause_of(line.encode() + b"\n") == cause
    assert [each.line for each in symptoms.symptoms_in(failed, rows)] == [line]
    assert family in suspected_families(failed, (), ())


def test_every_row_is_asked_for() -> None:
    """A row is a sign, makes settings suspect, or holds the text of a limit."""
    for name, text in TEXTS.items():
        assert SIGNS.get(name, text.pattern) == text.pattern
        assert name in SIGNS or text.families or name.startswith("limit."), name
        assert set(text.families) <= set(WORDS), name


def test_a_row_that_does_not_exist_is_no_pattern_that_matches_everything() -> None:
    with pytest.raises(KeyError):
        any_of("shm.nothing")
