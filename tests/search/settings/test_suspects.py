"""Which settings a failure makes suspect; suspicion orders the search and removes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.trial import Outcome, RankEnd
from preflight.search.settings.suspicion import WORDS, by_suspicion, suspected_families
from tests.node_facts import trial
from tests.search.settings.test_minimise import settings_of

FAMILIES = set(WORDS)


def ends(detail: str) -> tuple[RankEnd, ...]:
    return (RankEnd(0, "error", "init", detail),)


@pytest.mark.parametrize(
    ("detail", "family"),
    [
        ("NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)", "shm"),
        ("NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory", "ib"),
        ("NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152", "nvls"),
        ("NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'", "p2p"),
        ("NCCL WARN Bootstrap : no socket interface found", "socket"),
        ("NET/Plugin: Could not find: libnccl-net.so", "plugin"),
    ],
)
def test_an_errors_words_name_the_family(detail: str, family: str) -> None:
    assert family in suspected_families(trial(outcome=Outcome.INIT_ERROR, ranks=ends(detail)), (), ())


def test_what_was_in_use_when_it_hung_is_suspect() -> None:
    hung = trial(outcome=Outcome.HANG, problem="", ranks=(), transport=("0>1 via P2P/CUMEM", "netif eth0"))
    assert suspected_families(hung, (), ()) >= {"p2p"}
    assert "shm" not in suspected_families(hung, (), ())


def test_wrong_data_suspects_what_nothing_checks_and_broken_pairs_suspect_p2p() -> None:
    assert suspected_families(trial(outcome=Outcome.WRONG_DATA, problem="", ranks=()), (), ()) == {"p2p", "nvls"}
    assert suspected_families(None, ((0, 1),), ()) == {"p2p"}


def test_families_that_others_found_count() -> None:
    assert suspected_families(None, (), ("shm", "nvls")) == {"shm", "nvls"}


@given(st.sets(st.sampled_from(sorted(FAMILIES))))
def test_the_suspects_come_last_and_none_is_lost(families: set[str]) -> None:
    settings = settings_of(0)
    ordered = by_suspicion(settings, families)
    assert sorted(ordered, key=settings.index) == list(settings)
    guilty = [bool(families.intersection(each.families)) for each in ordered]
    assert guilty == sorted(guilty)


@given(st.text(max_size=300))
def test_any_text_only_ever_names_families(detail: str) -> None:
    assert suspected_families(trial(outcome=Outcome.CRASH, ranks=ends(detail)), (), ()) <= FAMILIES
