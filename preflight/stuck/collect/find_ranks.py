"""Which processes are the ranks of a job: from their variables, their launcher, and the threads of their process group.

Pure. A helper (a data worker, a compiler) inherits the variables of its rank; a launcher may carry Slurm's of its own.
"""

from __future__ import annotations

import os.path
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from preflight.model.gap import Gap
from preflight.stuck.collect.process_table import Listed

# Rank, size, local rank, local size; the first set whose rank is there counts.
SETS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMIX_RANK", "PMI_SIZE", "", ""),
    ("PMI_RANK", "PMI_SIZE", "", ""),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
)
JOB_NAMES = (
    ("MASTER_ADDR", "MASTER_PORT"), ("SLURM_JOB_ID", "SLURM_STEP_ID"), ("TORCHELASTIC_RUN_ID",),
)  # fmt: skip
GROUP_THREADS = frozenset(("gloo_tcp_loop", "pt_gloo_runloop", "pt_nccl_watchdg", "pt_nccl_heartbt"))  # torch's names
DATA_WORKER = "pt_data_worker"
WRAPPERS = frozenset((
    "bash", "sh", "dash", "zsh", "srun", "mpirun", "mpiexec", "env", "numactl", "taskset", "timeout", "nice", "time",
    "setpriv", "sudo", "su", "strace", "tini", "dumb-init", "apptainer", "singularity", "enroot", "slurmstepd",
))  # fmt: skip
# What a rank's script starts beside the program.
COMPANIONS = frozenset((
    "tail", "tee", "cat", "sleep", "tensorboard", "nvidia-smi", "dcgmi", "top", "htop", "watch", "ssh", "rsync",
    "wandb-core", "wandb-service", "py-spy",
))  # fmt: skip
INIT = 1


@dataclass(frozen=True, slots=True)
class FoundRank:
    """A rank, and the processes below it."""

    process: Listed
    rank: int | Gap
    source: str
    world_size: int | Gap
    local_world_size: int | Gap
    helpers: tuple[Listed, ...]


@dataclass(frozen=True, slots=True)
class FoundJob:
    """The ranks of one job on this node; `orphans` are what ranks left behind, with their number."""

    name: str
    ranks: tuple[FoundRank, ...]
    orphans: tuple[tuple[int, Listed], ...] = ()


def find_jobs(processes: Iterable[Listed]) -> tuple[FoundJob, ...]:
    """Return the jobs that run here."""
    tree = _Tree(processes)
    named = list(_by_variables(tree))
    taken = {each.process.pid for each in named} | {helper.pid for each in named for helper in each.helpers}
    ranks = [*named, *_by_threads(tree, taken)]
    orphans = list(_orphans(tree, ranks))
    jobs: dict[str, list[FoundRank]] = defaultdict(list)
    for each in ranks:
        jobs[_job_of(each)].append(each)
    return tuple(
        FoundJob(
            name,
            tuple(sorted(members, key=lambda r: (r.rank if isinstance(r.rank, int) else 1 << 30, r.process.pid))),
            tuple((number, p) for job, number, p in orphans if job == name),
        )
        for name, members in sorted(jobs.items())
        if not all(_is_wrapper(each.process) for each in members)  # somebody's shell in an allocation
    )


def jobs_of_pid(jobs: Sequence[FoundJob], processes: Iterable[Listed], pid: int) -> tuple[FoundJob, ...]:
    """Return the jobs to which a process belongs: as a rank, a helper or a launcher."""
    tree = _Tree(processes)
    below = {pid, *(each.pid for each in tree.below(pid))}
    return tuple(
        job
        for job in jobs
        if any(r.process.pid in below or pid in {h.pid for h in r.helpers} for r in job.ranks)
    )  # fmt: skip


def without_own(processes: Iterable[Listed], own_pid: int) -> tuple[Listed, ...]:
    """Return the others than this process; what it runs under, as a step of Slurm's, is no rank of the job."""
    tree = _Tree(processes)
    own = tree.by_pid.pop(own_pid, None)
    while own is not None and (own := tree.by_pid.get(own.parent_pid)) is not None:
        tree.by_pid[own.pid] = replace(own, variables={})
        if own.parent_pid == own.pid:
            break
    return tuple(tree.by_pid.values())


class _Tree:
    """Processes by their parents."""

    def __init__(self, processes: Iterable[Listed]) -> None:
        self.by_pid = {each.pid: each for each in processes}
        self._children: Mapping[int, list[Listed]] = defaultdict(list)
        for each in self.by_pid.values():
            self._children[each.parent_pid].append(each)

    def below(self, pid: int) -> Iterator[Listed]:
        visited, waiting = {pid}, list(self._children.get(pid, ()))
        while waiting:
            each = waiting.pop(0)
            if each.pid not in visited:
                visited.add(each.pid)
                yield each
                waiting += self._children.get(each.pid, ())

    def parent(self, each: Listed) -> Listed | None:
        return self.by_pid.get(each.parent_pid)


def identity(each: Listed) -> tuple[str, ...] | None:
    """Return what tells a rank from others, None where the process carries no rank's variables."""
    for names in SETS:
        number = each.variables.get(names[0], "")
        if number.isdecimal() and len(number) < 10:
            return (names[0], number, *(each.variables.get(name, "") for job in JOB_NAMES for name in job))
    return None


def _number(each: Listed, name: str) -> int | Gap:
    text = each.variables.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else Gap(f"{name or 'no variable'} does not say it")


def _by_variables(tree: _Tree) -> Iterator[FoundRank]:
    tops: dict[tuple[str, ...], Listed] = {}
    for each in sorted(tree.by_pid.values(), key=lambda p: (p.started_ticks, p.pid)):
        own = identity(each)
        parent = tree.parent(each)
        if own is None or is_data_worker(each) or each.state == "Z":
            continue
        if parent is not None and identity(parent) == own and not _is_launcher(tree, parent):
            continue
        if not _is_launcher(tree, each):
            tops.setdefault(own, each)
    for own, top in _not_left_behind(tops):
        process = _unwrapped(tree, top, own)
        names = next(names for names in SETS if names[0] == own[0])
        yield FoundRank(
            process, int(own[1]), own[0], _number(process, names[1]), _number(process, names[3]),
            tuple(tree.below(process.pid)),
        )  # fmt: skip


def _not_left_behind(tops: Mapping[tuple[str, ...], Listed]) -> Iterator[tuple[tuple[str, ...], Listed]]:
    """Yield all but what a rank that is gone has left behind: init adopted it, and not the other ranks.

    A process that has threads of a process group is a rank: the shell that started it has ended (nohup, setsid, ssh).
    """
    with_launcher = {_job_name(top) for top in tops.values() if top.parent_pid != INIT}
    for own, top in tops.items():
        if top.parent_pid != INIT or _job_name(top) not in with_launcher or top.thread_names & GROUP_THREADS:
            yield own, top


def _is_launcher(tree: _Tree, each: Listed) -> bool:
    """Tell whether several other ranks are below it, or one that torchrun started; a rank of torchrun is none."""
    own = identity(each)
    if own is not None and own[0] == "RANK" and "LOCAL_RANK" in each.variables:
        return False
    others = [other for other in tree.below(each.pid) if identity(other) not in (None, own)]
    numbers = {(identity(other) or ())[1] for other in others}
    is_torchrun = any("TORCHELASTIC_RUN_ID" in other.variables for other in others)
    return len(numbers) > 1 or (is_torchrun and "TORCHELASTIC_RUN_ID" not in each.variables)


def _unwrapped(tree: _Tree, top: Listed, own: tuple[str, ...]) -> Listed:
    """Return the program behind shells and wrappers: the first below that is none, and no companion of the program."""
    programs = [each for each in (top, *tree.below(top.pid)) if identity(each) == own and not _is_wrapper(each)]
    with_group = [each for each in programs if each.thread_names & GROUP_THREADS and not is_data_worker(each)]
    return next(iter(with_group or [each for each in programs if each.name not in COMPANIONS] or programs), top)


def _is_wrapper(each: Listed) -> bool:
    name = os.path.basename(each.arguments[0]) if each.arguments else each.name
    return name in WRAPPERS or each.name in WRAPPERS


def is_data_worker(each: Listed) -> bool:
    """Tell whether torch has named it a DataLoader's worker (2.6 and newer)."""
    return each.name.startswith(DATA_WORKER)


def _by_threads(tree: _Tree, taken: set[int]) -> Iterator[FoundRank]:
    """Yield processes in a process group that no variable tells: forked or started by Ray; numbered by their start."""
    found: dict[int, list[Listed]] = defaultdict(list)
    for each in tree.by_pid.values():
        if each.pid not in taken and not is_data_worker(each) and each.thread_names & GROUP_THREADS:
            found[each.parent_pid].append(each)
    for siblings in found.values():
        for number, each in enumerate(sorted(siblings, key=lambda p: (p.started_ticks, p.pid))):
            helpers = tuple(tree.below(each.pid))
            unknown = Gap("its variables were set after its start")
            if len(siblings) > 1:
                yield FoundRank(each, number, "presumed from the order of start", unknown, unknown, helpers)
            else:
                yield FoundRank(each, unknown, "", unknown, unknown, helpers)


def _orphans(tree: _Tree, ranks: Sequence[FoundRank]) -> Iterator[tuple[str, int, Listed]]:
    """Yield what ranks that are gone have left behind: data workers, and what init adopted."""
    known = {pid for each in ranks for pid in (each.process.pid, *(h.pid for h in each.helpers))}
    jobs = {_job_of(each): {r.rank for r in ranks if _job_of(r) == _job_of(each)} for each in ranks}
    for each in tree.by_pid.values():
        own = identity(each)
        if own is None or each.pid in known or not (is_data_worker(each) or each.parent_pid == INIT):
            continue
        name = _job_name(each)
        if name in jobs and int(own[1]) not in jobs[name]:
            yield name, int(own[1]), each


def _job_name(each: Listed) -> str:
    for names in JOB_NAMES:
        values = [each.variables.get(name, "") for name in names]
        if values[0]:
            return f"{names[0]} {':'.join(filter(None, values))}"
    return ""


def _job_of(each: FoundRank) -> str:
    return _job_name(each.process) or f"launcher {each.process.parent_pid}"
