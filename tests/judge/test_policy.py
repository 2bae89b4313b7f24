"""A policy decides what matters here; what it can't mean is an error, and what it waives is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import MalformedInput
from preflight.judge.policy import apply_policy, parse_policy
from preflight.model.collective import Collective
from preflight.model.finding import Blame, Finding, Severity
from preflight.model.policy import Floor, Level, Lookback, Policy, Waiver

CHECKS = {"memlock", "shm-too-small", "hca-port-stuck"}
TODAY = "2026-11-21"
WARNING = Finding("memlock", Blame.HOST, Severity.WARN, "n1", "8 MiB", "raise it", ())
FAILURE = Finding("hca-port-stuck", Blame.FABRIC, Severity.FAIL, "n1 mlx5_3:1", "INIT", "start OpenSM", ())
FULL = """
[checks]
memlock = "fatal"
hca-port-stuck = "warn"
[[waivers]]
check = "hca-port-stuck"
subject = "mlx5_3"
reason = "ticket 4711"
until = 2026-12-31
[expect]
gpu_count = 8
gpu_model = "h100"
driver = ">=580.65"
nic_count = 9
[lookback]
xids = "24h"
link_flaps = "90m"
[floors]
"all_reduce 1 GiB" = 400
"""


def read(text: str) -> Policy:
    return parse_policy(text, "site.toml", CHECKS, TODAY)


def judged(*findings: Finding, **parts: object) -> list[tuple[Severity, str]]:
    policy = Policy("site.toml", TODAY, **parts)  # type: ignore[arg-type]
    return [(each.severity, each.problem) for each in apply_policy(findings, policy)]


def test_every_part_of_a_policy_is_read() -> None:
    assert read(FULL) == Policy(
        "site.toml",
        TODAY,
        (("memlock", Level.FATAL), ("hca-port-stuck", Level.WARN)),
        (Waiver("hca-port-stuck", "mlx5_3", "ticket 4711", "2026-12-31"),),
        {"gpu_count": 8, "gpu_model": "h100", "driver": ">=580.65", "nic_count": 9},
        (Floor(Collective.ALL_REDUCE, 1 << 30, 400.0),),
        Lookback(86400.0, 5400.0),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[check]", "unknown table 'check'"),
        ('[checks]\nmemlok = "fatal"', "there is no check 'memlok'"),
        ('[checks]\nmemlock = "off"', 'write "fatal", "warn" or "info"'),
        ("[expect]\ngpus = 8", "unknown key 'gpus'"),
        ("[expect]\ngpu_count = true", "a count is needed"),
        ('[expect]\ndriver = "new"', ">=580.65"),
        ("[lookback]\nxid = '24h'", "unknown key 'xid'"),
        ("[lookback]\nxids = 24", 'xids: write "24h"'),
        ("[lookback]\nlink_flaps = '30d'", 'link_flaps: write "24h"'),
        ("[lookback]\nlink_flaps = '0h'", "at most 7 days"),
        ('[floors]\n"all_reduce 1GB" = 1', "all_reduce 1 GiB"),
        ('[floors]\n"all_reduce 1 GiB" = -1', "GB/s above 0"),
        ('[[waivers]]\ncheck = "memlock"\nreason = "x"', "it needs an end"),
        ('[[waivers]]\ncheck = "memlock"\nuntil = 2027-01-01', "it needs a reason"),
        ('waivers = "all"', r"\[\[waivers\]\]"),
        ("x = ", "no TOML"),
    ],
)
def test_what_it_can_not_mean_is_one_line_that_names_it(text: str, says: str) -> None:
    with pytest.raises(MalformedInput, match=says):
        read(text)


@given(st.text() | st.lists(st.sampled_from(FULL.split()), max_size=20).map(" ".join))
def test_any_text_is_a_policy_or_our_error(text: str) -> None:
    try:
        read(text)
    except MalformedInput as error:
        assert "site.toml" in str(error)


@given(st.text(alphabet="0123456789hms. -+e", max_size=12))
def test_any_time_to_look_back_is_between_nothing_and_a_week_or_our_error(text: str) -> None:
    try:
        assert 0 < (read(f'[lookback]\nxids = "{text}"').lookback.xids or 0) <= 7 * 86400
    except MalformedInput as error:
        assert "[lookback] xids" in str(error)


def test_a_fatal_check_fails_by_a_warning_and_a_mild_one_no_more() -> None:
    assert judged(WARNING, levels=(("memlock", Level.FATAL),)) == [
        (Severity.FAIL, "8 MiB [policy site.toml: fatal; was warn]")
    ]
    assert judged(FAILURE, levels=(("hca-port-stuck", Level.WARN),))[0][0] is Severity.WARN


def test_a_level_that_raises_no_note_says_that_it_had_no_effect() -> None:
    note = replace(WARNING, severity=Severity.INFO)
    kept, said = judged(note, levels=(("memlock", Level.FATAL), ("hca-port-stuck", Level.FATAL)))
    assert kept == (Severity.INFO, "8 MiB")
    assert said[0] is Severity.INFO and "stays INFO" in said[1]
    assert judged(note, levels=(("memlock", Level.INFO),)) == [kept]


def test_a_waived_failure_stays_visible_with_its_reason_and_end() -> None:
    waiver = Waiver("hca-port-stuck", "mlx5_3", "ticket 4711", TODAY)
    assert judged(FAILURE, waivers=(waiver,)) == [
        (Severity.INFO, f"INIT [waived until {TODAY}: ticket 4711; was fail]")
    ]
    other = replace(waiver, subject="mlx5_4")
    assert judged(FAILURE, waivers=(other,)) == [(Severity.FAIL, "INIT")]


def test_a_waiver_that_ended_changes_nothing_and_says_so() -> None:
    waiver = Waiver("hca-port-stuck", "", "ticket 4711", "2026-11-20")
    found = judged(FAILURE, waivers=(waiver,))
    assert found[0] == (Severity.FAIL, "INIT")
    assert "ended on 2026-11-20" in found[1][1]
    assert judged(WARNING, waivers=(waiver,)) == [(Severity.WARN, "8 MiB")], "a waiver that nobody needs is silent"
