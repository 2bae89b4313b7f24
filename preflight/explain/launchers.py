"""Which launcher started the job, and how a setting reaches its processes there."""

from __future__ import annotations

import re
from collections.abc import Iterable

# The more precise first: Ray runs on Kubernetes and under Slurm too.
LAUNCHERS: tuple[tuple[str, str], ...] = (
    ("ray", r"\(raylet|ray::|\bray\.(?:exceptions|get)|RayWorkerWrapper|Connected to Ray cluster|local Ray instance"),
    ("kubernetes", r"\bkubectl\b|\[pod/|\bpod/[a-z]|PyTorchJob|mpijob\.kubeflow|kubeflow\.org"),
    ("slurm", r"\bsrun: |slurmstepd: |\bsbatch\b|SLURM_JOB_ID"),
    ("mpirun", r"\bmpirun\b|\[1,\d{1,6}\]<std|prterun|mpiexec"),
    ("docker", r"\bdocker (?:run|compose)|Attaching to |nvidia-container-cli"),
)
# Where a variable has to be set for the processes of the job to have it.
REACHES: dict[str, str] = {
    "ray": (
        "With Ray the variables must reach the actors, not only the driver: ray.init(runtime_env={'env_vars': {...}}), "
        "or set them on every node before `ray start`."
    ),
    "kubernetes": "On Kubernetes set variables in the pod spec (spec.containers[].env) of every replica, not in a "
    "shell.",
    "slurm": "Under Slurm export variables before srun (it passes them on, unless --export says otherwise).",
    "mpirun": "mpirun passes variables to other hosts only with -x NAME (Open MPI) or -genv NAME VALUE (MPICH, Intel).",
    "docker": "In a container set variables with docker run -e NAME=VALUE, or in the compose file.",
}
SETTING = re.compile(r"\b(?:export )?[A-Z][A-Z0-9_]{5,60}=")


def launcher_of(match: str) -> str:
    """Return the launcher that a line of it was found by."""
    return next((name for name, pattern in LAUNCHERS if re.search(pattern, match)), "")


def how_to_set(launchers: Iterable[str], steps: Iterable[str]) -> tuple[str, ...]:
    """Return what a remedy that sets variables has to add for the launcher in use; nothing for one that sets none."""
    if not any(SETTING.search(step) for step in steps):
        return ()
    used = set(launchers)
    return next(((REACHES[name],) for name, _ in LAUNCHERS if name in used), ())
