"""Read the inherited variables that NCCL, gloo, torch or CUDA look at."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.model.facts import EnvVar
from preflight.system.machine import Machine
from preflight.system.questions import is_reported


def probe_environment(machine: Machine) -> tuple[EnvVar, ...]:
    """Return the variables by name."""
    return tuple(EnvVar(name, value) for name, value in sorted(machine.ask("environment").items()))


def reported_environment(environ: Mapping[str, str]) -> tuple[EnvVar, ...]:
    """Return those of the given variables that may stand in a report, by name."""
    return tuple(EnvVar(name, value) for name, value in sorted(environ.items()) if is_reported(name))
