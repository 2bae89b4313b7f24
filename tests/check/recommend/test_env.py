"""What is recommended, and what never is."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.check.recommend.env import cuda_places, gpu_env, recommend
from preflight.model.facts import EnvVar, Gap, Gpu
from preflight.model.report import Advice
from preflight.model.trial import AS_IS, Comparison, Outcome, Scope, TrialResult
from preflight.show.env_file import render_env
from tests.check.recommend.cloud_profiles import CLOUD_PROFILES, WHY_IT_STAYS
from tests.controls import confirmed_best
from tests.gpus import gpu
from tests.reports import advice_of, failed_trial, netif_trial, report_of, timed, trial_result

INHERITED = (EnvVar("NCCL_SOCKET_IFNAME", "eth7"), EnvVar("NCCL_ALGO", "Tree"))
REMOVED = ("NCCL_SOCKET_IFNAME", "NCCL_ALGO")
WON = Comparison("netif-eth0", 8, 0.21, 0.17, 0.15, wins=True)
NOT_WON = Comparison("netif-eth0", 8, 0.21, -0.02, 0.15, wins=False)


def advise(*trials: TrialResult, comparisons: tuple[Comparison, ...] = (), inherited: bool = False) -> Advice:
    asked = INHERITED if inherited else ()
    return recommend(trials, comparisons, asked, cpu_path=True, control=confirmed_best(trials))


def test_a_default_that_works_is_left_alone_and_the_reason_has_the_number() -> None:
    advice = advise(trial_result(), netif_trial("eth0", median_us=400.0))
    assert (advice.env, advice.unset) == ((), ())
    assert "all_reduce 1 MiB 1.31 GB/s, verified" in advice.reason


def test_a_candidate_that_clearly_won_is_recommended_with_the_trial_that_earned_it() -> None:
    advice = advise(trial_result(), netif_trial("eth0", median_us=660.0), comparisons=(WON,))
    assert dict(advice.env) == {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}
    assert advice.one_node_only == ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    assert dict(advice.evidence)["GLOO_SOCKET_IFNAME"] == (
        "trial 'netif-eth0': all_reduce 1 MiB 1.59 GB/s, verified; "
        "+21.0% in 8 rounds vs the default settings (all_reduce 1 MiB 1.31 GB/s)"
    )


def test_a_candidate_that_did_not_clearly_win_is_not_recommended() -> None:
    advice = advise(trial_result(), netif_trial("eth0"), comparisons=(NOT_WON,))
    assert advice.env == ()
    assert "no other configuration is clearly faster" in advice.reason


def test_where_the_default_fails_the_fewest_settings_win_then_the_fastest() -> None:
    one = (("GLOO_SOCKET_IFNAME", "eth1"),)
    slow, fast = netif_trial("eth1", env=one, median_us=900.0), netif_trial("eth2", env=one, median_us=800.0)
    advice = advise(failed_trial(), netif_trial("eth0", median_us=100.0), slow, fast)
    assert "trial 'netif-eth2' works" in advice.reason
    assert "the default settings hung (rank 1 is stuck at init" in advice.evidence[0][1]


def test_the_removed_variables_go_with_the_settings_that_were_tried_without_them() -> None:
    best = netif_trial("eth0", unset=REMOVED)
    advice = advise(failed_trial(unset=REMOVED), failed_trial("as-is"), best, inherited=True)
    assert advice.unset == ("NCCL_ALGO",)
    assert {name for name, _ in advice.evidence} == {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_ALGO"}


def test_inherited_settings_that_fail_are_removed_on_one_node_only_where_another_may_need_them() -> None:
    advice = advise(trial_result(unset=REMOVED), failed_trial("as-is"), inherited=True)
    assert advice.unset == REMOVED
    assert set(advice.one_node_only) == {"NCCL_SOCKET_IFNAME", "NCCL_ALGO"}
    assert "trial 'as-is' hung" in dict(advice.evidence)["NCCL_ALGO"]


def test_inherited_settings_that_clearly_lost_are_removed() -> None:
    lost = Comparison("as-is", 8, -0.30, -0.35, -0.4, wins=False)
    advice = advise(trial_result(unset=REMOVED), trial_result("as-is", 1150.0), comparisons=(lost,), inherited=True)
    assert advice.unset == REMOVED
    assert "-30.0%" in advice.reason


COMPARED = Comparison("as-is", 8, -0.02, -0.04, -0.05, wins=False)


@pytest.mark.parametrize(
    ("against", "as_is_us", "words"),
    [
        ((), 1000.0, "their speed was not compared"),
        ((), 39000.0, "no comparison has confirmed this speed"),
        ((COMPARED,), 1000.0, "are not clearly slower"),
    ],
)
def test_inherited_settings_whose_harm_is_not_proved_stay(
    against: tuple[Comparison, ...], as_is_us: float, words: str
) -> None:
    advice = advise(trial_result(unset=REMOVED), trial_result("as-is", as_is_us), comparisons=against, inherited=True)
    assert (advice.env, advice.unset) == ((), ())
    assert words in advice.reason


def test_inherited_settings_that_are_faster_stay_even_where_a_candidate_won() -> None:
    better = Comparison("as-is", 8, 0.3, 0.25, 0.2, wins=True)
    trials = (trial_result(unset=REMOVED), trial_result("as-is", 600.0), netif_trial("eth0"))
    advice = advise(*trials, comparisons=(better, WON), inherited=True)
    assert (advice.env, advice.unset) == ((), ())
    assert "+30.0% faster" in advice.reason


def test_nothing_is_recommended_where_only_the_inherited_settings_work() -> None:
    advice = advise(failed_trial(unset=REMOVED), trial_result("as-is"), inherited=True)
    assert (advice.env, advice.unset) == ((), ())
    assert "inherited settings are needed" in advice.reason


@pytest.mark.parametrize("name", ["lo", "=lo", "lo,eth0", "=lo:29500"])
def test_loopback_is_never_recommended(name: str) -> None:
    trial = netif_trial("x", env=(("NCCL_SOCKET_IFNAME", name),))
    assert advise(failed_trial(), trial).env == ()


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_only_a_trial_that_worked_can_win(outcome: Outcome) -> None:
    trial = netif_trial("eth0", outcome=outcome, problem="x")
    assert advise(failed_trial(), trial).env == ()
    assert advise(trial_result(), trial, comparisons=(WON,)).env == ()


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_a_wrong_answer_never_wins_however_fast(median_us: float) -> None:
    wrong = netif_trial("eth0", results=(timed(median_us=median_us), timed(median_us=median_us, verified=False)))
    assert advise(failed_trial(), wrong).env == ()
    assert advise(trial_result(), wrong, comparisons=(WON,)).env == ()


def test_a_trial_without_a_single_result_proves_nothing() -> None:
    assert advise(failed_trial(), netif_trial("eth0", results=())).env == ()


def test_the_order_of_trials_does_not_matter() -> None:
    trials = [failed_trial(), netif_trial("eth0"), netif_trial("eth1"), netif_trial("eth2", median_us=500.0)]
    assert len({recommend(order, (), (), cpu_path=True) for order in itertools.permutations(trials)}) == 1


def test_what_holds_anywhere_is_not_confined_to_one_node() -> None:
    trial = dataclasses.replace(netif_trial("p2p"), env=(("NCCL_P2P_DISABLE", "1"),), scope=Scope.ANYWHERE)
    assert advise(failed_trial(), trial).one_node_only == ()


def test_without_a_trial_nothing_is_recommended_and_timeouts_are_gaps() -> None:
    advice = advise()
    assert advice.reason == "no trial ran, so nothing can be recommended"
    assert isinstance(advice.pg_timeout_s, Gap)


ALL = tuple(gpu(i) for i in range(4))
ORDER = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def pinned(
    chosen: tuple[Gpu, ...], listed: tuple[Gpu, ...] = ALL, visible: str | None = None
) -> tuple[tuple[str, str], ...]:
    return gpu_env(True, visible, chosen, listed, some_closed=False)


def test_a_strict_subset_is_pinned_by_number_in_the_order_asked_for() -> None:
    assert pinned((ALL[3], ALL[1])) == (("CUDA_VISIBLE_DEVICES", "3,1"), ORDER)


def test_all_gpus_need_no_variable() -> None:
    assert pinned(ALL) == ()


def test_without_gpus_asked_for_nothing_is_pinned() -> None:
    assert gpu_env(False, None, ALL[:2], ALL, some_closed=False) == ()


def test_what_a_scheduler_set_stays() -> None:
    assert pinned(ALL[:2], visible="0,1,2") == ()


def test_numbers_follow_the_bus_where_nvml_counts_otherwise() -> None:
    swapped = (gpu(0, bdf="0000:90:00.0"), gpu(1, bdf="0000:10:00.0"), gpu(2, bdf="10000:01:00.0"))
    assert pinned(swapped[:1], swapped)[0] == ("CUDA_VISIBLE_DEVICES", "1")
    assert pinned(swapped[2:], swapped)[0] == ("CUDA_VISIBLE_DEVICES", "2")


def test_without_a_proof_the_uuid_is_written() -> None:
    unknown = (gpu(0), gpu(1, bdf=Gap("denied")))
    assert pinned(unknown[:1], unknown)[0] == ("CUDA_VISIBLE_DEVICES", "GPU-00000000")
    assert gpu_env(True, None, ALL[:1], ALL, some_closed=True)[0] == ("CUDA_VISIBLE_DEVICES", "GPU-00000000")


@given(st.permutations(range(6)), st.sets(st.integers(0, 5), min_size=1, max_size=5))
def test_the_numbers_mean_the_same_gpus_whatever_the_order(buses: list[int], asked: set[int]) -> None:
    listed = tuple(gpu(i, bdf=f"0000:{bus:02x}:00.0") for i, bus in enumerate(buses))
    by_cuda = sorted(listed, key=lambda each: str(each.bdf))
    (_, numbers), _ = pinned(tuple(listed[i] for i in sorted(asked)), listed)
    assert [by_cuda[int(n)].uuid for n in numbers.split(",")] == [listed[i].uuid for i in sorted(asked)]


def test_the_env_file_exports_them_with_the_gpus_they_mean() -> None:
    advice = advice_of(gpu_env=pinned(ALL[2:]), gpus=("GPU-00000002", "GPU-00000003"))
    text = render_env(report_of(advice=advice))
    assert "# The GPUs that were tried: GPU-00000002, GPU-00000003." in text
    shown = subprocess.run(
        ["sh", "-c", f"{text}\necho $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"], capture_output=True, check=True
    )
    assert shown.stdout == b"2,3 PCI_BUS_ID\n"


def test_two_gpus_of_one_address_have_no_number() -> None:
    assert cuda_places((gpu(0), gpu(1, bdf=gpu(0).bdf))) is None


@pytest.mark.parametrize("ends", ["loses", "fails"])
@pytest.mark.parametrize("cloud", CLOUD_PROFILES)
def test_a_clouds_network_profile_stays_for_jobs_on_several_nodes(cloud: str, ends: str) -> None:
    names = CLOUD_PROFILES[cloud]
    assert [name for name in names if name not in WHY_IT_STAYS] == []
    lost = (Comparison(AS_IS, 8, -0.25, -0.27, -0.3, wins=False),) if ends == "loses" else ()
    as_is = trial_result(AS_IS) if ends == "loses" else failed_trial(AS_IS)
    inherited = tuple(EnvVar(name, "1") for name in names)
    trials = (trial_result(unset=names), as_is)
    advice = recommend(trials, lost, inherited, cpu_path=False, control=confirmed_best(trials))
    assert set(advice.unset) == set(names) == set(advice.one_node_only)
