"""Read the inherited variables that NCCL, gloo, torch or CUDA look at."""

from __future__ import annotations

from preflight.model.facts import EnvVar
from preflight.system.machine import Machine


def probe_environment(machine: Machine) -> tuple[EnvVar, ...]:
    """Return the variables by name."""
    return tuple(EnvVar(name, value) for name, value in sorted(machine.ask("environment").items()))
