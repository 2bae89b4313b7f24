"""What a rank of a small group sets: its candidate, what that is on its node, and over it what holds it to one way."""

from __future__ import annotations

from pathlib import Path

from preflight.model.codec import decode, encode
from preflight.model.run_spec import Backend, NodePlace, OwnEnv, RunSpec, TrialPlan
from preflight.model.trial import AS_IS, Candidate, Scope
from preflight.search.profiles import stage_limits
from preflight.trial.rank.channel import Channel
from preflight.trial.rank.group_step import GroupStep, RankGroup, Span
from preflight.trial.rank.step import Rank, Step, assign

ETH1 = (("GLOO_SOCKET_IFNAME", "eth1"),)
GROUP = RankGroup((Span(0, 2), Span(5, 1, ETH1)))


def given(candidate: Candidate, tmp_path: Path, *own: OwnEnv) -> dict[str, str]:
    """Return what a rank's child sets that is held to eth1."""
    spec = RunSpec(
        run_dir=str(tmp_path), backend=Backend("gloo", "", "gloo"), place=NodePlace(2), deadline_monotonic_s=1e9,
        trials=TrialPlan((candidate,), stage_limits("gloo", None), own_env=own),
        inherited=(("GLOO_SOCKET_IFNAME", "ib0"), ("NCCL_IB_TIMEOUT", "22")),
    )  # fmt: skip
    rank = Rank(0, 0, spec, Channel(str(tmp_path)))
    return dict(assign(rank, 0, Step("x", (candidate,), by_exec=False), also=ETH1).set_env)


def test_a_group_knows_its_ranks_and_what_each_sets() -> None:
    assert GROUP.ranks == [0, 1, 5]
    assert [GROUP.env_of(rank) for rank in GROUP.ranks] == [(), (), ETH1]


def test_a_step_crosses_as_json_and_one_without_settings_of_ranks_still_does() -> None:
    step = GroupStep("x", Candidate("default", (), "", Scope.ANYWHERE), False, (GROUP,))
    order = encode(step)
    assert decode(GroupStep, order) == step
    del order["groups"][0]["spans"][0]["env"]
    assert decode(GroupStep, order) == step


def test_what_holds_a_rank_to_a_way_wins_over_the_candidate_and_what_it_is_on_this_node(tmp_path: Path) -> None:
    candidate = Candidate("netif", (("GLOO_SOCKET_IFNAME", "eth7"), ("NCCL_NET", "IB")), "", Scope.ANYWHERE)
    assert given(candidate, tmp_path) == {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_NET": "IB"}
    assert given(candidate, tmp_path, OwnEnv("netif", (("GLOO_SOCKET_IFNAME", "eth8"),))) == dict(ETH1)


def test_it_wins_over_what_was_inherited_and_the_rest_of_that_stays(tmp_path: Path) -> None:
    as_is = Candidate(AS_IS, (), "", Scope.ANYWHERE)
    assert given(as_is, tmp_path) == {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_IB_TIMEOUT": "22"}
