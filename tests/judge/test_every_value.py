"""Which findings each single value of a node and of its results changes: no value changes a verdict unnoticed.

The files in tests/golden/judge list each change of a value with the findings that it adds and removes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from preflight.check.survey import survey_capture
from preflight.fleet.baseline import learn
from preflight.judge.check import Case, all_checks, run_checks
from preflight.judge.speed_judges import hardware_of_case
from preflight.judge.verdict import decide
from preflight.model.collective import Collective
from preflight.model.counters import CounterKind, OutsideEvent, OutsideKind
from preflight.model.facts import NodeFacts
from preflight.model.gpu_test import Hardware
from preflight.model.isolation import NO_ISOLATION, GroupOutcome, Isolation, IsolationRound
from preflight.model.network_survey import NetworkSurvey, PathEnd
from preflight.model.policy import Floor, Lookback, Policy
from preflight.model.storage import StorageSpeed
from preflight.model.trial import DEFAULT, Control, Outcome, RailTest, TrialResult
from preflight.system.known_bugs import load_known_bugs
from preflight.system.links import load_links
from tests.controls import confirmed
from tests.hardware import counter, hardware
from tests.judge.run.test_lookback import DOWN, XID_79, looking_back
from tests.judge.run.test_nccl_diagnosis import FAILED, VERIFIED, diagnosed
from tests.judge.run.test_node_at_fault import group
from tests.judge.run.test_rail import rail_test
from tests.kept import compare
from tests.node_facts import MIB, advice, gpu_case, node, trial
from tests.perturbed import table
from tests.search.ways import between
from tests.search.ways import nodes as offers

HERE = Path(__file__).parent.parent
CHECKS = all_checks()
BUGS, LINKS = load_known_bugs(), load_links()
POINT = (Collective.ALL_REDUCE, MIB)
CONTRADICTORY = r"nvml_index|gpus: (none|without)|isolation[.](rounds|dead|slow)"  # other values name these
TRANSPORT = ("0>1 via P2P/CUMEM", "1>2 via P2P/CUMEM")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is changed: the values of one node, and the results of its run."""

    node: NodeFacts
    trials: tuple[TrialResult, ...]
    hardware: Hardware | None = None
    rails: tuple[RailTest, ...] | None = None
    storage: StorageSpeed | None = None
    control: Control | None = None
    between: NetworkSurvey | None = None
    isolation: Isolation | None = None
    outside: tuple[OutsideEvent, ...] = ()


def captured(name: str) -> NodeFacts:
    """Return the values of a captured machine."""
    return survey_capture((HERE / "machines" / f"{name}.json").read_text(encoding="utf-8")).node


def judged_case(inputs: Inputs, case: Case) -> Case:
    """Return the case with these inputs."""
    given: dict[str, Any] = {"nodes": (inputs.node, *case.nodes[1:])}
    for name in ("trials", "hardware", "rails", "storage", "control", "between", "isolation", "outside"):
        given[name] = getattr(inputs, name)
    return replace(case, **given)


def healthy() -> tuple[Inputs, Case]:
    """Return eight H100 on which everything works, with a policy, a baseline and a log of the kernel."""
    back = looking_back((5.0, DOWN))
    policy = Policy(
        "site.toml", "2026-11-22",
        expect={"gpu_count": 8, "gpu_model": "H100", "driver": ">=550", "nic_count": 9, "ecc": True},
        floors=(Floor(*POINT, 0.5),), lookback=Lookback(86400.0, 86400.0),
    )  # fmt: skip
    case = gpu_case(
        gpus=tuple(range(8)), world_size=8, links=LINKS, bugs=BUGS, policy=policy, before=back.before,
        baseline_source="golden.json", diagnosis=diagnosed(VERIFIED),
    )  # fmt: skip
    inputs = Inputs(
        captured("h100x8"), (trial(world_size=8, transport=TRANSPORT), trial("nvls", world_size=8)),
        hardware(8, counters=(counter(), counter("ecc_uncorrected", kind=CounterKind.FATAL))),
        tuple(rail_test(i) for i in range(4)), StorageSpeed("/ckpt", 2, MIB, 1e9, 1e9, 2e9, 2e9, 1.0),
    )  # fmt: skip
    known = learn(
        hardware_of_case(judged_case(inputs, case)), {f"n{i}": [{POINT: 1.0}, {POINT: 1.0}] for i in range(10)}
    )
    return inputs, replace(case, baseline=known)


def broken_p2p() -> tuple[Inputs, Case]:
    """Return four L20 whose default settings hang, with a workaround that an A/B test confirmed."""
    hung = trial(outcome=Outcome.HANG, world_size=4)
    works = trial("p2p-off", world_size=4, env=(("NCCL_P2P_DISABLE", "1"),), transport=("0>1 via SHM/direct",))
    inputs = Inputs(
        captured("l20x10_ens34"), (hung, works), hardware(4), control=confirmed((hung, works), "p2p-off"),
        outside=(OutsideEvent(OutsideKind.OOM_KILL, 1, "memory.events"),),
    )  # fmt: skip
    case = gpu_case(
        gpus=(3, 4, 5, 6), world_size=4, links=LINKS, bugs=BUGS, diagnosis=diagnosed(FAILED),
        before=looking_back((2.0, XID_79.format(3))).before, policy=Policy("site.toml", "2026-11-22"),
    )  # fmt: skip
    return inputs, case


def container() -> tuple[Inputs, Case]:
    """Return four L20 in a container with a small /dev/shm, and default settings that crash."""
    inputs = Inputs(captured("l20x4_docker"), (trial(outcome=Outcome.CRASH, world_size=4),), hardware(4))
    return inputs, gpu_case(gpus=(0, 1, 2, 3), world_size=4, links=LINKS, bugs=BUGS)


def several_nodes() -> tuple[Inputs, Case]:
    """Return four nodes on the CPU of which one is dead, with two networks."""
    groups = (
        group(0, 1, observed=GroupOutcome.OK), group(0, 2, observed=GroupOutcome.DEAD),
        group(1, 2, observed=GroupOutcome.DEAD), group(1, 3, observed=GroupOutcome.SLOW, speed=6.0),
    )  # fmt: skip
    apart = replace(
        NO_ISOLATION, why="the 4 nodes fail together", candidate=DEFAULT, is_failing=True, dead=(2,), slow=(3,),
        rounds=(IsolationRound("neighbours", groups, 1.0),),
    )  # fmt: skip
    ways = between(offers(4, "eth0", "ib0"), lambda each: PathEnd.REFUSED if each.netif == "ib0" else PathEnd.OK)
    inputs = Inputs(node(host="n0"), (trial(outcome=Outcome.HANG, world_size=4),), between=ways, isolation=apart)
    return inputs, gpu_case(nodes=tuple(node(host=f"n{i}") for i in range(4)), backend="gloo", wants_gpus=False)


def findings(inputs: Inputs, case: Case) -> list[str]:
    """Return each finding, each check that could not look, and the verdict."""
    judged = judged_case(inputs, case)
    found, skipped, _ = run_checks(CHECKS, judged)
    assert not [each for each in skipped if each.crashed]
    decision = decide(judged, found, skipped, judged.trials, advice(), (), strict=False, accept=True, cpu_path=False)
    return [
        f"{decision.headline} ({decision.exit_code})",
        *(f"{each.severity.name.lower()} {each.blame.value} {each.check} · {each.subject}: {each.problem}" for each in found),  # noqa: E501
        *(f"{each.outcome.value} {each.check}: {each.reason}" for each in skipped),
    ]  # fmt: skip


@pytest.mark.parametrize("make", [healthy, broken_p2p, container, several_nodes], ids=lambda make: make.__name__)
def test_a_changed_value_changes_these_findings(make: Callable[[], tuple[Inputs, Case]]) -> None:
    inputs, case = make()
    compare(
        HERE / "golden" / "judge" / f"{make.__name__}.txt",
        table(inputs, lambda each: findings(each, case), CONTRADICTORY),
    )
