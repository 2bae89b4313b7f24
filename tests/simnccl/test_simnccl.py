"""The grammar of SIMNCCL, exactly as the issue states it, and to whom a rule applies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simnccl.simnccl import ACTIONS, STAGES, Rule, parse
from tests.simnccl.simulation import read_rules


def only(text: str) -> Rule:
    (rule,) = parse(text)
    return rule


def test_a_bare_action_holds_for_all_ranks() -> None:
    assert only("hang") == Rule("hang", -1, "init", 5.0, (), ())


@pytest.mark.parametrize(
    ("action", "stage"),
    [("hang", "init"), ("crash", "init"), ("stop", "init"), ("corrupt", "timed"), ("slow", "timed")],
)
def test_corrupt_and_slow_are_timed_unless_told_otherwise(action: str, stage: str) -> None:
    assert only(action).stage == stage
    assert only(f"{action}:stage=first").stage == "first"


def test_keys_are_separated_by_commas_and_rules_by_semicolons() -> None:
    one, other = parse("slow:rank=1,factor=2.5,stage=first; crash:rank=0")
    assert (one.action, one.rank, one.stage, one.factor) == ("slow", 1, "first", 2.5)
    assert (other.action, other.rank) == ("crash", 0)
    assert parse("") == parse(" ; ") == ()


def test_the_value_of_when_runs_to_the_end_of_the_rule_and_only_the_first_equals_sign_separates() -> None:
    rules = parse("hang:rank=1,when=NCCL_SOCKET_IFNAME==eth0,eth1;crash")
    assert rules[0].when == (("NCCL_SOCKET_IFNAME", "=eth0,eth1"),)
    assert rules[0].rank == 1
    assert rules[1].action == "crash"


def test_an_ampersand_joins_conditions_that_must_all_hold() -> None:
    rule = only("hang:when=A=1&B==2")
    assert rule.when == (("A", "1"), ("B", "=2"))
    assert rule.applies(0, "init", {"A": "1", "B": "=2"})
    assert not rule.applies(0, "init", {"A": "1"})


def test_unless_spares_only_where_all_its_conditions_hold() -> None:
    rule = only("hang:unless=A=1&B=2")
    assert not rule.applies(0, "init", {"A": "1", "B": "2"})
    assert rule.applies(0, "init", {"A": "1"})
    assert rule.applies(0, "init", {})


def test_a_rule_applies_to_its_rank_and_stage_only() -> None:
    rule = only("crash:rank=2,stage=timed")
    assert rule.applies(2, "timed", {})
    assert not rule.applies(1, "timed", {})
    assert not rule.applies(2, "first", {})


def test_a_rule_may_go_by_what_the_data_goes_through_so_that_every_setting_that_changes_it_cures() -> None:
    rule = only("hang:via=P2P")
    assert (rule.stage, rule.where) == ("first", (("via", "P2P"),))
    assert rule.applies(0, "first", {}, {"via": frozenset({"P2P/PCI"})})
    assert not rule.applies(0, "first", {}, {"via": frozenset({"SHM/CUMEM"})})
    assert not rule.applies(0, "first", {}), "no machine, no transport"


def test_an_exclamation_mark_takes_anything_else() -> None:
    rule = only("hang:netif=!ens34")
    assert rule.stage == "init"
    assert rule.applies(0, "init", {}, {"netif": frozenset({"eno1"})})
    assert not rule.applies(0, "init", {}, {"netif": frozenset({"ens34"})})


def test_several_places_must_all_hold() -> None:
    rule = only("error:net=IB,netif=eno1,rank=1")
    assert rule.applies(1, "init", {}, {"net": frozenset({"IB"}), "netif": frozenset({"eno1"})})
    assert not rule.applies(1, "init", {}, {"net": frozenset({"IB"}), "netif": frozenset({"ens34"})})


def test_a_rule_that_needs_a_machine_is_refused_without_one() -> None:
    assert read_rules("hang:via=P2P;crash", has_machine=True)
    with pytest.raises(ValueError, match="--machine"):
        read_rules("crash;hang:via=P2P", has_machine=False)


@pytest.mark.parametrize(
    "text",
    ["hang:via=PCI", "hang:via=!", "error:net=ib", "hang:netif=", "hang:cumem=2",
     "explode", "hang:colour=red", "hang:rank=one", "slow:factor=much", "hang:stage=last", ":rank=1", "HANG",
     "hang:when=A", "hang:unless=A=1&B", "hang:when==1", "slow:factor=nan", "slow:factor=-1", "hang:rank=-2"],
)  # fmt: skip
def test_what_is_no_rule_is_a_value_error_and_never_a_fault_that_does_not_happen(text: str) -> None:
    with pytest.raises(ValueError, match="SIMNCCL"):
        parse(text)


@given(st.text(max_size=60) | st.text(alphabet="hangslowcrsp:;,=&rank01fetimdwu.A", max_size=60))
def test_any_text_gives_rules_or_a_value_error(text: str) -> None:
    try:
        rules = parse(text)
    except ValueError:
        return
    assert all(rule.action in ACTIONS and rule.stage in STAGES for rule in rules)


VALUES = st.text(st.characters(exclude_characters=";&", exclude_categories=("Z", "C")), max_size=10)
NAMES = st.from_regex(r"\A[A-Z_][A-Z0-9_]{0,10}\Z")
CONDITIONS = st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=3)


@given(
    st.sampled_from(ACTIONS), st.integers(0, 9), st.sampled_from(STAGES), st.floats(1, 100), CONDITIONS, st.booleans()
)
def test_a_rule_that_was_written_is_read_back(
    action: str, rank: int, stage: str, factor: float, conditions: list[tuple[str, str]], spares: bool
) -> None:
    joined = "&".join(f"{name}={value}" for name, value in conditions)
    rule = only(f"{action}:rank={rank},stage={stage},factor={factor!r},{'unless' if spares else 'when'}={joined}")
    assert (rule.action, rule.rank, rule.stage, rule.factor) == (action, rank, stage, factor)
    assert (rule.unless if spares else rule.when) == tuple(conditions)
