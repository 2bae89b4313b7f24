"""What the kernel wrote before the run counts as far back as the policy says, and what it no longer holds is open."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact
from preflight.facts.lookback import parse_history
from preflight.judge.check import Case, run_checks
from preflight.judge.run.lookback import lookback
from preflight.judge.verdict import decide
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Severity, Unseen
from preflight.model.hca import PortCounter
from preflight.model.lookback import KernelHistory, TimedLine
from preflight.model.policy import Lookback, Policy
from tests.judge.findings import applies_not, found, only, skips
from tests.node_facts import advice, gpu_case, gpu_node
from tests.topology import port

HOUR_S, DAY_S = 3600.0, 86400.0
NOW_S = 10 * DAY_S
XID_79 = "NVRM: Xid (PCI:0000:0{}:00): 79, pid=1234, GPU has fallen off the bus."
DOWN, UP = "mlx5_core 0000:1b:00.0 ens1f0np0: Link down", "mlx5_core 0000:1b:00.0 ens1f0np0: Link up"
IGB = ("igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down", "igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Up 1000 Mbps")
NET = (("ens1f0np0", 3), ("eno1", 1))


def looking_back(
    *lines: tuple[float, str],
    begins_s: float = 0.0,
    now_s: float = NOW_S,
    losses: tuple[tuple[str, int | Gap], ...] = (),
    counters: tuple[PortCounter, ...] | Gap = (),
    xids: float | None = DAY_S,
    link_flaps: float | None = DAY_S,
) -> Case:
    """Return a case of a node whose kernel wrote these lines so many hours before now."""
    timed = tuple(TimedLine(now_s - ago_h * HOUR_S, text) for ago_h, text in lines)
    policy = Policy("site.toml", "2026-11-22", lookback=Lookback(xids, link_flaps))
    node = gpu_node(4, hca_ports=(port(counters=counters),))
    before = KernelHistory(now_s, begins_s, timed, losses)
    return replace(gpu_case(nodes=(node,)), policy=policy, before=before)


def test_without_a_policy_nobody_looks_back() -> None:
    assert applies_not(lookback, gpu_case()) == "no policy says how far back to search for Xids and lost links"


def test_a_hardware_xid_of_the_last_day_fails_the_gpu_and_an_older_one_does_not() -> None:
    case = looking_back((50, XID_79.format(1)), (3, XID_79.format(1)), (2, XID_79.format(1)))
    finding = only(found(lookback, case))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.GPU)
    assert "Xid 79 occurred 2 times 2.0 h ago: the GPU has fallen off the bus" in finding.problem
    assert found(lookback, looking_back((50, XID_79.format(1)))) == ()


@pytest.mark.parametrize(("number", "count"), [(13, 0), (31, 0), (45, 0), (63, 0), (999, 1)])
def test_xids_of_programs_prove_nothing_afterwards_and_unknown_ones_warn(number: int, count: int) -> None:
    findings = found(lookback, looking_back((1, XID_79.format(1).replace("79", str(number)))))
    assert [each.severity for each in findings] == [Severity.WARN] * count


def test_the_xid_of_a_gpu_that_is_not_the_jobs_is_somebody_elses() -> None:
    case = looking_back((1, "NVRM: Xid (PCI:0000:1b:00): 79, x"))
    gpus = case.nodes[0].gpus
    assert not isinstance(gpus, Gap)
    bus = str(gpus[3].bdf).rpartition(".")[0]
    fell = replace(looking_back((1, f"NVRM: Xid (PCI:{bus}): 79, x")), gpus=(0, 1))
    assert found(lookback, fell) == ()
    assert only(found(lookback, replace(fell, gpus=(3,)))).subject.endswith("GPU 3")


@pytest.mark.parametrize(("down", "up"), [(DOWN, UP), IGB])
def test_a_link_that_came_and_went_is_a_fault_of_the_fabric(down: str, up: str) -> None:
    losses = NET[:1] if down == DOWN else NET[1:]
    finding = only(found(lookback, looking_back((5, down), (4.9, up), (3, down), (2.9, up), losses=losses)))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.FABRIC)
    assert "went down and came up again 2 times, the last time 3.0 h ago" in finding.problem


def test_what_a_start_does_and_what_stays_down_is_no_flap() -> None:
    at_boot = ((1.0, DOWN), (0.999, UP))
    assert found(lookback, looking_back(*at_boot, now_s=HOUR_S, losses=(("ens1f0np0", 1),))) == ()
    assert found(lookback, looking_back((5, DOWN), losses=())) == ()
    assert found(lookback, looking_back((1, "ata1: SATA link down (SStatus 0)"), (0.9, "ata1: SATA link up"))) == ()


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (
            looking_back(begins_s=NOW_S - 3 * HOUR_S),
            "the kernel log reaches back 3.0 h, but the policy asks for 24.0 h",
        ),
        (looking_back(losses=(("eth9", 2),)), "eth9 has lost its link 2 times, but no line of the log says when"),
        (looking_back(losses=(("eth9", Gap("denied")),)), "eth9: denied"),
        (looking_back(counters=(PortCounter("link_downed", 2),)), "has lost its link 2 times, but the time is unknown"),
        (looking_back(counters=Gap("the firmware does not answer")), "the firmware does not answer"),
        (replace(looking_back(), before=Gap("/dev/kmsg: Operation not permitted")), "Operation not permitted"),
        (replace(looking_back(), before=None), "was not read"),
    ],
)
def test_what_nobody_kept_costs_the_acceptance(case: Case, reason: str) -> None:
    skip = skips(lookback, case)[0]
    assert reason in skip.reason and skip.costs is Unseen.ACCEPTANCE
    findings, skipped, _ = run_checks((lookback,), case)
    told = decide(case, findings, skipped, case.trials, advice(), (), strict=False, accept=True, cpu_path=False)
    assert (told.exit_code, findings) == (3, ())


def test_a_port_that_lost_its_link_since_a_boot_in_that_time_is_a_warning() -> None:
    case = looking_back(counters=(PortCounter("link_downed", 2),), now_s=5 * HOUR_S)
    assert only(found(lookback, case)).severity is Severity.WARN


def test_a_log_that_begins_with_the_boot_is_whole_however_short_it_is() -> None:
    assert found(lookback, looking_back(now_s=HOUR_S, losses=(("ens1f0np0", 0),))) == ()


def test_only_what_the_policy_names_is_looked_at() -> None:
    lines = ((2, XID_79.format(1)), (1, DOWN), (0.9, UP))
    assert only(found(lookback, looking_back(*lines, losses=NET[:1], link_flaps=None))).blame is Blame.GPU
    assert only(found(lookback, looking_back(*lines, losses=NET[:1], xids=None))).blame is Blame.FABRIC


@given(
    st.recursive(
        st.none() | st.text() | st.floats() | st.integers(),
        lambda each: st.lists(each) | st.dictionaries(st.sampled_from(["now_s", "begins_s", "lines"]), each),
    )
)
def test_any_answer_is_a_history_or_our_error(answer: object) -> None:
    try:
        parse_history(answer)
    except UnreadableFact as error:
        assert "no list of lines" in str(error)


def test_a_number_that_no_float_holds_is_our_error() -> None:
    with pytest.raises(UnreadableFact, match="no list of lines"):
        parse_history({"now_s": 10**400, "begins_s": 0.0, "lines": []})
