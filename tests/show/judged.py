"""Reports that the real checks, the real advice and the real verdict made of simulated nodes and trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from preflight.check.recommend.env import recommend
from preflight.fleet.baseline import learn
from preflight.judge.check import Case, all_checks, found_by, run_checks
from preflight.judge.phases import RunProgress, phases_of
from preflight.judge.policy import apply_policy
from preflight.judge.speed_judges import beside_baseline, judged_by
from preflight.judge.verdict import decide
from preflight.model.baseline import Baseline, hardware_class_of, repetitions_of
from preflight.model.collective import Collective
from preflight.model.facts import ContainerKind, Gap, NodeFacts
from preflight.model.finding import Blame
from preflight.model.gpu import GpuProcess, RecoveryAction
from preflight.model.hca import HcaPort, PhysState, PortState
from preflight.model.policy import Floor, Policy, Waiver
from preflight.model.report import Report
from preflight.model.trial import AGAIN, Comparison, TrialResult
from preflight.search.gpus.link_speeds import expected_of_trials
from preflight.system.links import load_links
from tests.controls import confirmed_best
from tests.gpus import gpu
from tests.hardware import hardware
from tests.node_facts import contained, failed_with, gpu_node, shm, trial
from tests.reports import report_of

MACHINES = Path(__file__).parent.parent / "machines"
MIB = 1 << 20
SIZES = (8, 1 << 10, 32 << 10, MIB, 32 * MIB, 256 * MIB, 1 << 30)
DURATIONS = (("probe", 0.43), ("start of the ranks", 9.8), ("trials", 74.2), ("judging", 0.04), ("total", 84.6))


def judged(
    nodes: tuple[NodeFacts, ...],
    trials: tuple[TrialResult, ...],
    comparisons: tuple[Comparison, ...] = (),
    *,
    accept: bool = True,
    problem: str = "",
    world_size: int = 2,
    gpus: tuple[int, ...] = (),
    policy: Policy | None = None,
    baseline: Baseline | None = None,
) -> Report:
    """Return what `preflight check` would say of these nodes and trials over NCCL."""
    control = confirmed_best(trials)
    case = Case(
        nodes, trials, "nccl", world_size, wants_gpus=True, gpus=gpus, policy=policy, baseline=baseline,
        baseline_source="golden.json", hardware=hardware(world_size) if trials else None, control=control,
    )  # fmt: skip
    checks = all_checks()
    findings, skipped, ran = run_checks(checks, case)
    findings = findings if policy is None else apply_policy(findings, policy)
    advice = recommend(trials, comparisons, (), cpu_path=False, control=control)
    problems = (problem,) if problem else ()
    decision = decide(case, findings, skipped, trials, advice, problems, strict=False, accept=accept, cpu_path=False)
    return report_of(
        verdict=decision.verdict, node_verdict=decision.node_verdict, exit_code=decision.exit_code,
        headline=decision.headline, backend="nccl", world_size=world_size, nodes=nodes, trials=trials,
        comparisons=comparisons, findings=findings, skipped_checks=skipped, problems=problems, advice=advice,
        profile="standard", durations_s=DURATIONS, checks=found_by(ran, findings), control=control,
        phases=phases_of(RunProgress(True, True, not problem, not problem, problem, trials)),
        judged_by=judged_by(case), beside_baseline=beside_baseline(case),
        expected=expected_of_trials(load_links(), nodes[0], gpus, trials) if nodes else Gap("no node"),
    )  # fmt: skip


def _application() -> Report:
    theirs = gpu(1, memory_used_bytes=60 << 30, processes=(GpuProcess(4242, 60 << 30, "python", 1000, is_ours=False),))
    return judged((gpu_node(2, gpus=(gpu(0), theirs)),), (trial(),), gpus=(0, 1))


def _configuration() -> Report:
    facts = gpu_node(2)
    software = facts.software
    assert not isinstance(software, Gap) and not isinstance(software.torch, Gap)
    no_cuda = replace(software, torch=replace(software.torch, cuda=Gap("a CPU build"), nccl=Gap("no NCCL")))
    return judged((replace(facts, software=no_cuda),), (), problem="torch was built without CUDA")


def _container() -> Report:
    small = contained(replace(gpu_node(2), shm=shm(64 * MIB)), ContainerKind.DOCKER)
    told = "ncclSystemError: Error while creating shared memory segment /dev/shm/nccl-x (size 33030528), error 28"
    return judged((small,), (failed_with(told),))


def _host() -> Report:
    return judged((gpu_node(2),), (failed_with("Fatal Python error: Segmentation fault"),), gpus=(0, 1))


def _gpu() -> Report:
    sick = gpu_node(2, gpus=(gpu(0), gpu(1, recovery_action=RecoveryAction.NODE_REBOOT)))
    return judged((sick,), (trial(),), gpus=(0, 1))


def _fabric() -> Report:
    stuck = HcaPort("mlx5_0", 1, PortState.INIT, PhysState.LINK_UP, 400.0, "InfiniBand", 0, 0, (), (), ())
    return judged((gpu_node(2, hca_ports=(stuck,)),), (trial(),), gpus=(0, 1))


def _harness() -> Report:
    return judged((gpu_node(2),), (), problem="preflight's process of rank 1 died by SIGKILL during start")


BLAMED: dict[Blame, Callable[[], Report]] = {
    Blame.APPLICATION: _application,
    Blame.CONFIGURATION: _configuration,
    Blame.CONTAINER: _container,
    Blame.HOST: _host,
    Blame.GPU: _gpu,
    Blame.FABRIC: _fabric,
    Blame.HARNESS: _harness,
}


def accepted() -> Report:
    """Return a node of two GPUs on which everything is as it should be."""
    return judged((gpu_node(2),), (trial(),), gpus=(0, 1))


def below_baseline() -> Report:
    """Return a node that stays at 80% of known-good ones over all repetitions."""
    facts = gpu_node(2)
    again = tuple(trial(f"{AGAIN}{turn}") for turn in (1, 2, 3))
    return judged((facts,), (trial(), *again), gpus=(0, 1), baseline=_good_nodes(1.25))


def like_baseline() -> Report:
    """Return a node that is as fast as known-good ones."""
    return judged((gpu_node(2),), (trial(),), gpus=(0, 1), baseline=_good_nodes(1.0))


def below_floor() -> Report:
    """Return a node that misses a floor of the site's policy."""
    floor = Floor(Collective.ALL_REDUCE, MIB, 1000.0)
    return judged((gpu_node(2),), (trial(),), gpus=(0, 1), policy=Policy("site.toml", "2026-11-21", floors=(floor,)))


def waived() -> Report:
    """Return a node with a port that is stuck, and a policy that lets it pass for now."""
    waiver = Waiver("hca-port-stuck", "mlx5_0", "RMA 4711", "2027-01-31")
    stuck = HcaPort("mlx5_0", 1, PortState.INIT, PhysState.LINK_UP, 400.0, "InfiniBand", 0, 0, (), (), ())
    return judged(
        (gpu_node(2, hca_ports=(stuck,)),), (trial(),), gpus=(0, 1),
        policy=Policy("site.toml", "2026-11-21", waivers=(waiver,)),
    )  # fmt: skip


def _good_nodes(factor: float) -> Baseline:
    facts = gpu_node(2)
    (speeds,) = repetitions_of((trial(),))
    good = {f"n{i}": [{point: speed * factor * (1 + 0.001 * i) for point, speed in speeds.items()}] * 2
            for i in range(-4, 5)}  # fmt: skip
    assert not isinstance(facts.gpus, Gap) and not isinstance(facts.system, Gap)
    return learn(hardware_class_of("nccl", 2, facts.system.architecture, facts.gpus), good)
