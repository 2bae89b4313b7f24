"""Plan the test runs of this node, and build the specification for the ranks."""

from __future__ import annotations

from dataclasses import replace

from preflight.check.run_record import RunRecord
from preflight.facts.cgroup import usable_cpus
from preflight.model.baseline import NO_BASELINE, Baseline, difference, hardware_class_of
from preflight.model.facts import Gap, SystemFacts, known
from preflight.model.profile import MIB, GpuTests
from preflight.model.run_spec import Backend, NodePlace, RankGpus, RunSpec, TrialPlan
from preflight.model.units import size_text
from preflight.search import profiles
from preflight.search.gpus.gpu_tests import device_plan
from preflight.search.gpus.link_speeds import pair_limits
from preflight.search.settings.candidate_plan import NcclPlan, plan_nccl
from preflight.search.settings.candidates import DEFAULT_CANDIDATE, gloo_candidates
from preflight.search.settings.rdma import rails_to_try
from preflight.search.trial_plan import trial_plan
from preflight.system.kernel_queries import live_machine
from preflight.system.links import load_links

CONDUCTOR_MARGIN_S = 1.5  # before the deadline: the conductor ends its step
CPU_MEMORY_SHARE = 0.25  # of what is free, for all ranks together
GPU_MEMORY_SHARE = 0.8
GIB = 1 << 30


def plan_trials(run: RunRecord) -> NcclPlan:
    """Return the plan of this node's test runs: the configurations to try, and the configurations to leave out."""
    if run.request.default_only:
        return NcclPlan((DEFAULT_CANDIDATE,), (), ())
    if run.path.dialect == "nccl":
        return plan_nccl(run.node, run.chosen, run.inherited, for_speed=run.request.profile.effort.for_speed)
    netifs = run.node.netifs if isinstance(run.node.netifs, tuple) else ()
    candidates, left_out = gloo_candidates(netifs, run.inherited)
    return NcclPlan(candidates, (), left_out)


def build_spec(run: RunRecord, machine_path: str) -> RunSpec:
    """Return the specification of this node's own test runs.

    If `machine_path` is not empty, the ranks simulate the machine in that file.
    """
    request, path = run.request, run.path
    gpus = () if path.on_cpu else path.gpus
    addresses = tuple("" if isinstance(gpu.bdf, Gap) else gpu.bdf for gpu in gpus)
    return RunSpec(
        run_dir=run.run_dir,
        backend=Backend(path.backend, path.backend_module, path.dialect),
        place=NodePlace(path.world_size),
        trials=_trial_plan(run),
        deadline_monotonic_s=run.ends_at() - CONDUCTOR_MARGIN_S,
        gpus=RankGpus(tuple(known(gpu.uuid) for gpu in gpus), addresses),
        inherited=run.inherited,
        devices=replace(
            device_plan(request.profile, gpus, run.node, request.burn_s, request.wanted_tests),
            pair_limits=pair_limits(load_links(), run.node, gpus),
        ),
        rails=rails_to_try(run.node, request.profile, path.dialect) if GpuTests.RAILS in request.wanted_tests else (),
        machine_path=machine_path,
    )


def _trial_plan(run: RunRecord) -> TrialPlan:
    request, path = run.request, run.path
    sizes = profiles.sizes(request.profile, _on_gpu(run), free_bytes_per_rank(run), request.sizes_bytes)
    plan = trial_plan(
        request, run.plan.candidates, path.backend, sizes,
        on_gpus=path.wants_gpus, cpu_path=path.on_cpu, ranks_per_cpu=_ranks_per_cpu(run),
    )  # fmt: skip
    cure_sizes = profiles.cure_sizes(sizes)
    return replace(
        plan,
        settings=run.plan.settings,
        cure_measures=profiles.measures(profiles.DUEL_TIMING, cure_sizes, request.wanted_collectives),
        baseline=_comparable_baseline(run),
    )


def _on_gpu(run: RunRecord) -> bool:
    return bool(run.path.gpus) and not run.path.on_cpu


def too_little_memory(run: RunRecord) -> str:
    """Return an error text if ranks on the CPU have too little free memory, or "" if there is enough memory."""
    need, ranks = profiles.BUFFERS_PER_SIZE * MIB, run.path.world_size
    if not run.path.on_cpu or free_bytes_per_rank(run) >= need:
        return ""
    have, needed = (size_text(int(each * ranks / CPU_MEMORY_SHARE)) for each in (free_bytes_per_rank(run), need))
    return (
        f"only {have} of memory is free for {ranks} ranks, which need {needed}: end other processes, raise the "
        "cgroup's limit, or start fewer ranks (`--nproc`)"
    )


def without_room(run: RunRecord) -> str:
    """Return a text that names the message sizes that do not fit into memory, or "" if all sizes fit.

    The result is always "" for ranks on GPUs.
    """
    # For GPUs, the check gpu-memory reports a lack of memory.
    room = free_bytes_per_rank(run)
    left_out = profiles.sizes_without_room(run.request.profile, _on_gpu(run), room, run.request.sizes_bytes)
    if not left_out or not run.path.on_cpu:
        return ""
    return f"nothing of {size_text(left_out[0])} and more: each rank may take {size_text(room)} of the free memory"


def _ranks_per_cpu(run: RunRecord) -> float:
    """Return how many ranks share one of the CPUs that this process may use.

    Return 1 if the ranks compute on GPUs.
    """
    if not run.path.on_cpu:
        return 1.0
    return run.path.world_size / usable_cpus(live_machine())


def _comparable_baseline(run: RunRecord) -> Baseline:
    """Return the baseline if the baseline has this run's hardware class. Otherwise return NO_BASELINE.

    With NO_BASELINE, no trial is repeated.
    """
    asked, system = run.baseline, run.node.system
    if asked is None or isinstance(system, Gap):
        return NO_BASELINE
    here = hardware_class_of(run.path.backend, run.path.world_size, system.architecture, run.path.gpus)
    return NO_BASELINE if difference(here, asked.hardware) else asked


def free_bytes_per_rank(run: RunRecord) -> int:
    """Return how many bytes of GPU or host memory one rank may use."""
    # On GPUs, the result is a share of the free memory of the GPU that has the least free memory. On CPUs, the ranks
    # share a part of the free host memory within the cgroup's limit.
    if not run.path.on_cpu:
        free = [gpu.memory_free_bytes for gpu in run.path.gpus if isinstance(gpu.memory_free_bytes, int)]
        return int(min(free, default=GIB) * GPU_MEMORY_SHARE)
    system = run.node.system
    if run.request.is_played:  # what is free on that machine is not free here
        return GIB // max(1, run.path.world_size)
    limits = (
        (system.memory_available_bytes, system.cgroup_memory_limit_bytes) if isinstance(system, SystemFacts) else ()
    )
    free_bytes = min((value for value in limits if isinstance(value, int)), default=GIB)
    return int(free_bytes * CPU_MEMORY_SHARE / max(1, run.path.world_size))
