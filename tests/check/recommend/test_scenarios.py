"""Whole searches on described machines, to the lines of the `.env`, which a real shell then sources."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from preflight.check.recommend.env import recommend
from preflight.check.recommend.machine_context import MachineContext
from preflight.check.survey import survey_capture
from preflight.model.facts import NetifKind, NodeFacts
from preflight.model.report import Advice
from preflight.model.trial import AS_IS, Candidate, Outcome, Scope, Setting, TrialResult
from preflight.search.settings.candidate_plan import plan_nccl
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.show.env_file import render_env
from preflight.system.links import load_links
from tests.controls import confirmed
from tests.node_facts import LO, env, netif, trial
from tests.reports import report_of
from tests.search.searching import Searched, search, searched
from tests.simnccl.interpreter import interpret
from tests.simnccl.simnccl import parse

MACHINES = Path(__file__).parent.parent.parent / "machines"
GPUS = (6, 7, 8, 9)
NETIFS = (
    LO,
    netif("virbr0", index=2, kind=NetifKind.BRIDGE, addresses=("192.168.122.1",), gateways=()),
    netif("br-5a1c", index=3, kind=NetifKind.BRIDGE, addresses=("172.18.0.1",), gateways=()),
    netif("eno1", index=4, addresses=("10.9.0.4",), gateways=()),
    netif("ens34", index=5, addresses=("10.1.0.4",)),
)
P2P, IB = "NCCL_P2P_DISABLE=1", "NCCL_IB_DISABLE=1"
NET = "NCCL_SOCKET_IFNAME==ens34"
LINES = {P2P: ("NCCL_P2P_DISABLE", "1"), IB: ("NCCL_IB_DISABLE", "1"), NET: ("NCCL_SOCKET_IFNAME", "=ens34")}


def l20s() -> NodeFacts:
    """Return ten L20, one RoCE adapter, and ens34 among other interfaces (the fifth seed report)."""
    node = survey_capture((MACHINES / "l20x10.json").read_text()).node
    return replace(node, netifs=NETIFS)


def context(settings: tuple[Setting, ...], inherited: tuple[Setting, ...] = ()) -> MachineContext:
    return MachineContext(settings, inherited, l20s(), GPUS, load_links(), "2026-11-21")


def advised(done: Searched, settings: tuple[Setting, ...], inherited: tuple[Setting, ...] = ()) -> Advice:
    """Return what is recommended after a search on four of the L20."""
    asked = INHERITED if inherited else ()
    return recommend(
        done.results, (), asked, cpu_path=False, context=context(settings, inherited), control=done.control
    )


def sourced(text: str, tmp_path: Path, **environ: str) -> dict[str, str]:
    """Return NCCL's and gloo's variables after a shell sourced the file."""
    path = tmp_path / "preflight.env"
    path.write_text(text)
    shown = subprocess.run(
        ["bash", "-euc", '. "$1"; env', "bash", str(path)], env={"PATH": "/usr/bin:/bin", **environ},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    pairs = [line.split("=", 1) for line in shown.splitlines() if line.startswith(("NCCL_", "GLOO_"))]
    return {pair[0]: pair[1] for pair in pairs}


SUBSETS = [subset for size in (1, 2, 3) for subset in combinations((P2P, IB, NET), size)]


@pytest.mark.parametrize("needed", SUBSETS, ids=["+".join(part.partition("=")[0] for part in each) for each in SUBSETS])
def test_the_fifth_seed_report_gets_the_settings_that_it_needs_and_no_more(
    needed: tuple[str, ...], tmp_path: Path
) -> None:
    plan = plan_nccl(l20s(), GPUS, (), for_speed=False)
    done = searched(parse(";".join(f"hang:stage=first,unless={each}" for each in needed)), plan.settings)
    advice = advised(done, plan.settings)
    wanted = dict(LINES[each] for each in needed)
    assert dict(advice.env) == wanted

    text = render_env(report_of(advice=advice, nodes=(l20s(),), backend="nccl", world_size=4))
    on_one = sourced(text, tmp_path)
    on_two = sourced(text, tmp_path, SLURM_NNODES="2")
    assert on_one == wanted
    assert on_two == {name: value for name, value in wanted.items() if name == "NCCL_P2P_DISABLE"}


def test_for_each_variable_is_said_what_was_seen_what_it_costs_the_repair_and_when_it_may_go() -> None:
    plan = plan_nccl(l20s(), GPUS, (), for_speed=False)
    done = searched(parse(f"hang:stage=first,unless={P2P};crash:unless={IB}"), plan.settings)
    advice = advised(done, plan.settings)
    about = dict(advice.evidence)["NCCL_P2P_DISABLE"].splitlines()
    assert about[0].startswith("When unset: trial 'without ")
    assert [text.partition(":")[0] for text in about[1:4]] == ["When set", "Costs", "Repair"]
    assert "NCCL_P2P_DISABLE" in about[0] or "' hung (" in about[0]
    assert "verified" in about[1]
    assert "of the links' 31.5 GB/s" in about[2]
    assert "iommu=pt" in about[3]
    assert about[4].startswith("After the repair, run `preflight check`")
    assert "2026-11-21 with NCCL 2.26.2, driver 580.95.05" in about[4]
    assert "ibstat" in next(text for name, text in advice.evidence if name == "NCCL_IB_DISABLE" and "Repair" in text)


def stopped_after(trials: int, rules: str, settings: tuple[Setting, ...]) -> Searched:
    """Return a search whose time was out after so many trials, but for going back with what worked until then."""
    count = 0

    def run(candidate: Candidate) -> TrialResult:
        nonlocal count
        count += 1
        if count == trials + 1:
            problem = "4 s were left before the deadline"
            return trial(candidate.name, Outcome.SKIPPED, env=candidate.env, reason=candidate.reason, problem=problem)
        return interpret(parse(rules), candidate)

    return search(settings, run)


def test_where_time_ran_out_the_settings_that_worked_are_recommended_and_said_to_be_too_many() -> None:
    plan = plan_nccl(l20s(), GPUS, (), for_speed=False)
    cut = stopped_after(2, f"hang:unless={P2P}", plan.settings)
    advice = advised(cut, plan.settings)
    assert ("NCCL_P2P_DISABLE", "1") in advice.env
    assert len(advice.env) > 3
    assert "fewer settings may be enough: time ran out" in advice.reason
    assert any("unknown" in text for name, text in advice.evidence if name == "NCCL_SHM_DISABLE")


def test_what_nothing_cures_is_not_recommended() -> None:
    plan = plan_nccl(l20s(), GPUS, (), for_speed=False)
    advice = recommend(
        searched(parse("hang"), plan.settings).results, (), (), cpu_path=False, context=context(plan.settings)
    )
    assert (advice.env, advice.unset) == ((), ())
    assert "none of the tested settings work" in advice.reason


INHERITED = env(NCCL_P2P_DISABLE="1", NCCL_BUFFSIZE="8388608", NCCL_SOCKET_IFNAME="ens34")


def as_is_search(needed: set[str], inherited: tuple[Setting, ...]) -> Searched:
    def run(candidate: Candidate) -> TrialResult:
        works = candidate.name == AS_IS or needed <= dict(candidate.env).keys()
        return trial(candidate.name, Outcome.OK if works else Outcome.HANG, env=candidate.env)

    as_is = Candidate(AS_IS, (), "", Scope.ANYWHERE)
    return search((), run, (DEFAULT_CANDIDATE, as_is), inherited)


INHERITED_SETTINGS = tuple(Setting(each.name, ((each.name, each.value),), (), Scope.ANYWHERE) for each in INHERITED)


@pytest.mark.parametrize(
    "needed", [{"NCCL_P2P_DISABLE"}, {"NCCL_P2P_DISABLE", "NCCL_SOCKET_IFNAME"}, {each.name for each in INHERITED}]
)
def test_where_only_the_inherited_settings_work_those_that_are_needed_are_kept(needed: set[str]) -> None:
    done = as_is_search(needed, INHERITED_SETTINGS)
    advice = advised(done, (), INHERITED_SETTINGS)
    assert {name for name, _ in advice.env} == needed
    assert advice.unset == ()
    assert set(advice.one_node_only) == needed & {"NCCL_SOCKET_IFNAME"}
    assert "inherited settings are needed" in advice.reason


def test_inherited_settings_of_which_not_all_were_tried_without_stay_as_they_are() -> None:
    whole = as_is_search({"NCCL_P2P_DISABLE"}, INHERITED_SETTINGS)
    cut = Searched(whole.results[:2], confirmed(whole.results[:2], AS_IS))
    advice = advised(cut, (), INHERITED_SETTINGS)
    assert (advice.env, advice.unset) == ((), ())
    assert "inherited settings are needed" in advice.reason
