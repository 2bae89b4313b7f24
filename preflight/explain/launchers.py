"""Which launcher started the job, and how what a remedy asks for is done there: a setting, a limit, another log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

RAY, KUBERNETES, SLURM, MPIRUN, DEEPSPEED, DOCKER, TORCHRUN = (
    "ray", "kubernetes", "slurm", "mpirun", "deepspeed", "docker", "torchrun",
)  # fmt: skip
# The more precise first: Ray runs on Kubernetes and under Slurm too, torchrun below all of them.
LAUNCHERS: tuple[tuple[str, str], ...] = (
    (RAY, r"\(raylet|ray::|\bray\.(?:exceptions|get)|RayWorkerWrapper|Connected to Ray cluster|local Ray instance"),
    (KUBERNETES, r"\bkubectl\b|\[pod/|\bpod/[a-z]|PyTorchJob|mpijob\.kubeflow|kubeflow\.org"),
    (SLURM, r"\bsrun: |slurmstepd: |\bsbatch\b|SLURM_JOB_ID"),
    (MPIRUN, r"\bmpirun\b|\[1,\d{1,6}\]<std|prterun|mpiexec"),
    (DEEPSPEED, r"\[launch\.py:\d|deepspeed\.launcher|\bpdsh\b"),
    (DOCKER, r"\bdocker (?:run|compose)|Attaching to |nvidia-container-cli"),
    (TORCHRUN, r"\btorchrun\b|torch[./]distributed[./](?:elastic|run|launch)\b|elastic/multiprocessing"),
)


@dataclass(frozen=True, slots=True)
class Need:
    """What a step of a remedy may ask for, the words by which it is known, and how each launcher does it."""

    asked_by: re.Pattern[str]
    ways: Mapping[str, str]


VARIABLES = Need(
    re.compile(r"\b(?:export )?[A-Z][A-Z0-9_]{5,60}="),
    {
        RAY: "With Ray the variables must reach the actors, not only the driver: "
        "ray.init(runtime_env={'env_vars': {...}}), or set them on every node before `ray start`.",
        KUBERNETES: "On Kubernetes set variables in the pod spec (spec.containers[].env) of every replica, not in a "
        "shell.",
        SLURM: "Under Slurm export variables before srun (it passes them on, unless --export says otherwise).",
        MPIRUN: "mpirun passes variables to other hosts only with -x NAME (Open MPI) or -genv NAME VALUE (MPICH, "
        "Intel).",
        DEEPSPEED: "DeepSpeed's launcher takes variables to the other hosts from ~/.deepspeed_env, NAME=VALUE a line.",
        DOCKER: "In a container set variables with docker run -e NAME=VALUE, or in the compose file.",
        TORCHRUN: "torchrun's ranks inherit the shell that starts it: set variables on every node before torchrun.",
    },
)
LIMITS = Need(
    re.compile(r"\bulimit\b|memlock|--shm-size|/dev/shm"),
    {
        RAY: "With Ray the limits are those of the shell or container in which `ray start` ran, on every node.",
        KUBERNETES: "On Kubernetes limits and volumes belong into the pod spec of every replica.",
        SLURM: "Under Slurm limits are slurmd's and the submitting shell's: srun bash -c 'ulimit -a; df -h /dev/shm' "
        "shows what a task gets.",
    },
)
OTHER_LOGS = Need(
    re.compile(r"\b[Ll]ogs? of (?:rank|that|the)\b|--log-dir|[Gg]et the log"),
    {
        RAY: "Ray keeps them on the node of the worker: ls /tmp/ray/session_latest/logs/ (raylet.out, and "
        "worker-*PID*.err of its pid).",
        KUBERNETES: "kubectl logs POD --previous; kubectl describe pod POD; kubectl get events "
        "--sort-by=.lastTimestamp",
        SLURM: "srun --output=job-%j-%t.log keeps one log a task; sacct -j JOBID "
        "--format=JobID,State,ExitCode,MaxRSS,NodeList says which failed first, and how.",
        MPIRUN: "mpirun --output-filename DIR (Open MPI) keeps one log a rank.",
        DEEPSPEED: "deepspeed --enable_each_rank_log DIR keeps one log a rank.",
        DOCKER: "docker logs CONTAINER on every host; docker inspect -f '{{.State}}' CONTAINER says how it ended.",
    },
)


def launcher_of(match: str) -> str:
    """Return the launcher that a line of it was found by."""
    return next((name for name, pattern in LAUNCHERS if re.search(pattern, match)), "")


def way(need: Need, launchers: Iterable[str]) -> tuple[str, ...]:
    """Return how the launcher in use does what is needed; of several the most precise one."""
    used = set(launchers)
    return next(((need.ways[name],) for name, _ in LAUNCHERS if name in used and name in need.ways), ())


def with_launcher(steps: Iterable[str], launchers: Iterable[str], *, sets_variables: bool) -> tuple[str, ...]:
    """Return a remedy's steps, and below them how the launcher in use does each kind of thing that they ask for."""
    steps, used = tuple(steps), frozenset(launchers)
    asked = [need for need in (VARIABLES, LIMITS, OTHER_LOGS) if any(map(need.asked_by.search, steps))]
    if sets_variables and VARIABLES not in asked:
        asked.insert(0, VARIABLES)
    return (*steps, *(line for need in asked for line in way(need, used)))
