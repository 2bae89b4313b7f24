"""Which parts of the plan each single value of a node changes, and which next step each value of a result.

The files in tests/golden/search list each change of a value with the parts of the plan that it adds and removes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from preflight.check.request import Request
from preflight.check.survey import survey_capture
from preflight.errors import NotApplicable, UnreadableFact
from preflight.model.collective import Collective
from preflight.model.facts import Gap, NodeFacts
from preflight.model.joint import SoloResult
from preflight.model.network_survey import ClockOffset, NetworkSurvey, PathEnd
from preflight.model.profile import Profile
from preflight.model.run_spec import Measure
from preflight.model.trial import DEFAULT, Candidate, Outcome, Scope, TrialResult
from preflight.search.gpus.gpu_set_advice import advise_gpus
from preflight.search.gpus.gpu_tests import device_plan
from preflight.search.gpus.link_speeds import expected_busbw, host_limits, pair_limits
from preflight.search.nodes.differences import differences
from preflight.search.nodes.joint_plan import plan_jointly, shared_candidates
from preflight.search.nodes.route_isolation import routes_between
from preflight.search.settings.candidate_plan import plan_nccl
from preflight.search.settings.candidates import DEFAULT_CANDIDATE, gloo_candidates
from preflight.search.settings.rdma import rails_to_try
from preflight.search.settings.search import next_step
from preflight.search.settings.steps import Known
from preflight.system.links import load_links
from tests.kept import compare
from tests.node_facts import MIB, result, trial
from tests.perturbed import table
from tests.search.ways import between
from tests.search.ways import nodes as offers

HERE = Path(__file__).parent.parent
LINKS = load_links()
# Other values name these, and NVML gives two numbers as the compute capability.
CONTRADICTORY = r"nvml_index|gpus: (none|without)|gpu_paths.*[.][ab]:|compute_capability.*'(other)?'$"


def captured(name: str) -> NodeFacts:
    """Return the values of a captured machine."""
    return survey_capture((HERE / "machines" / f"{name}.json").read_text(encoding="utf-8")).node


def said(name: str, value: Any) -> str:
    """Return one part of a plan as a line, without the names of classes and fields."""
    text = re.sub(r"<\w+[.]\w+: '([^']*)'>", r"\1", str(value))
    return f"{name}: {re.sub(r'(?<=[(, ])[a-z_]+=|[A-Z][A-Za-z]+(?=[(])', '', text)}"[:200]


def planned(node: NodeFacts, chosen: tuple[int, ...], inherited: tuple[tuple[str, str], ...]) -> list[str]:
    """Return the parts of the plan for these GPUs."""
    plan = plan_nccl(node, chosen, inherited, for_speed=True)
    gpus = [] if isinstance(node.gpus, Gap) else [gpu for gpu in node.gpus if gpu.nvml_index in chosen]
    netifs = () if isinstance(node.netifs, Gap) else node.netifs
    lines = [
        *(said("candidate", each) for each in plan.candidates),
        *(said("setting", each) for each in plan.settings),
        *(said("left out", each) for each in (*plan.left_out, *plan.settings_left_out)),
        *(said("gloo", each) for each in gloo_candidates(netifs, inherited)[0]),
        *(said("round", each) for each in device_plan(Profile.STANDARD, gpus, node).rounds),
        *(said("rail", each.hca) for each in rails_to_try(node, Profile.QUICK, "nccl")),
        said("limits of the host", host_limits(LINKS, gpus)),
    ]
    for name, ask in (
        ("limits of pairs", lambda: pair_limits(LINKS, node, gpus)),
        ("GPU set", lambda: advise_gpus(node, chosen)),
        ("busbw", lambda: expected_busbw(LINKS, node, chosen, Collective.ALL_REDUCE, 64 * MIB)),
    ):
        try:
            lines.append(said(name, ask()))
        except (UnreadableFact, NotApplicable) as error:
            lines.append(f"{name}: {error}")
    return lines


@pytest.mark.parametrize(
    ("name", "chosen"), [("h100x8", tuple(range(8))), ("l20x10_ens34", (6, 7, 8, 9)), ("l20x4_docker", (0, 1, 2, 3))]
)
def test_a_changed_value_of_a_node_changes_these_parts_of_its_plan(name: str, chosen: tuple[int, ...]) -> None:
    inherited = (("NCCL_P2P_DISABLE", "1"),)
    text = table(captured(name), lambda node: planned(node, chosen, inherited), CONTRADICTORY)
    compare(HERE / "golden" / "search" / f"{name}.txt", text)


def alone(rank: int, facts: NodeFacts, **changes: Any) -> SoloResult:
    """Return the result of a node on which all works alone."""
    made = SoloResult(
        host=f"n{rank}", ranks=8, backend="nccl", dialect="nccl", is_cpu_path=False, problem="", trials=(), findings=(),
        skipped_checks=(), env=(), inherits_tuning=False, netif="eth0", free_bytes_per_rank=1 << 30,
        gpus=tuple(range(8)), facts=replace(facts, host=f"n{rank}"),
    )  # fmt: skip
    return replace(made, **changes)


@dataclass(frozen=True, slots=True)
class Two:
    """What is changed: the second of two nodes, and the survey of the network paths."""

    second: SoloResult
    survey: NetworkSurvey


def planned_jointly(two: Two, first: SoloResult) -> list[str]:
    """Return the parts of the joint plan."""
    solos = {0: first, 1: two.second}
    plans = plan_jointly(solos, "10.0.0.1", 60.0, Request(), two.survey)
    clocks = (ClockOffset(1, "n1", 0.5, 0.01),)
    return [
        *(said("candidate", each) for each in shared_candidates(solos, between=two.survey)),
        *(said("difference", each) for each in differences((first.facts, two.second.facts), clocks, "nccl")),
        *(said("route", each) for each in routes_between(solos, two.survey)),
        *(said("place", each.place) for each in plans.values()),
        said("measures", plans[0].trials.measures),
    ]


@pytest.mark.parametrize("name", ["h100x8", "l20x10_ens34"])
def test_a_changed_value_of_a_second_node_changes_these_parts_of_the_joint_plan(name: str) -> None:
    facts = captured(name)
    ways = between(offers(2, "eth0", "ib0"), lambda each: PathEnd.REFUSED if each.netif == "ib0" else PathEnd.OK)
    text = table(
        Two(alone(1, facts), ways), lambda two: planned_jointly(two, alone(0, facts)), f"ranks: 8 -> 0|{CONTRADICTORY}"
    )
    compare(HERE / "golden" / "search" / f"two_{name}.txt", text)


P2P = Candidate("p2p-off", (("NCCL_P2P_DISABLE", "1"),), "copies may be lost", Scope.ANYWHERE)
RING = Candidate("ring", (("NCCL_ALGO", "Ring"),), "may be faster", Scope.ANYWHERE)
SETTINGS = plan_nccl(captured("l20x4_docker"), (0, 1, 2, 3), (), for_speed=False).settings
MEASURES = (Measure(Collective.ALL_REDUCE, MIB, 0.5, 3, 100),)


def slow(median_us: float) -> TrialResult:
    """Return default settings at this speed."""
    return trial(results=(replace(result(), median_us=median_us),))


KNOWN = {
    "hung": Known((trial(outcome=Outcome.HANG),), left_s=300.0),
    "cured": Known((trial(outcome=Outcome.HANG), trial("all", env=P2P.env)), left_s=300.0, failed_at=MEASURES),
    "one_failed": Known((slow(900.0), trial("p2p-off", Outcome.CRASH, env=P2P.env)), left_s=300.0),
    "works": Known((slow(900.0), trial("p2p-off", env=P2P.env), trial("ring", env=RING.env)), left_s=300.0),
}


def stepped(known: Known) -> list[str]:
    """Return the next step with and without a comparison of all configurations."""
    made = []
    for screen_all in (False, True):
        step = next_step(
            (DEFAULT_CANDIDATE, P2P, RING), screen_all, MEASURES, known, SETTINGS, runs_each=4, on_gpus=True,
            cure_measures=MEASURES,
        )  # fmt: skip
        made.append(said(f"{type(step).__name__}{' (all)' * screen_all}", step))
    return made


@pytest.mark.parametrize("name", KNOWN)
def test_a_changed_result_changes_the_next_step_so(name: str) -> None:
    assert KNOWN[name].results[0].candidate == DEFAULT
    compare(HERE / "golden" / "search" / f"step_{name}.txt", table(KNOWN[name], stepped))
