"""Read the versions of Python, torch and NCCL without importing torch."""

from __future__ import annotations

import re

from preflight.errors import UnreadableFact
from preflight.model.facts import SoftwareFacts, TorchFacts
from preflight.probe.reading import answered, gap_or
from preflight.system.machine import Json, Machine


def probe_software(machine: Machine) -> SoftwareFacts:
    """Return the versions; torch is a Gap where it is not installed."""
    answer = machine.ask("software")
    return SoftwareFacts(
        python=str(answer["python"]),
        preflight=str(answer["preflight"]),
        torch=gap_or(lambda: _parse_torch(answered(answer["torch"]))),
    )


def _parse_torch(torch: Json) -> TorchFacts:
    version_file = str(torch["version_file"])
    return TorchFacts(
        version=parse_version(version_file, "__version__"),
        cuda=gap_or(lambda: parse_version(version_file, "cuda")),
        nccl=gap_or(lambda: choose_nccl(parse_version(version_file, "cuda"), torch["nccl_wheels"])),
        location=str(torch["location"]),
    )


def parse_version(version_file: str, name: str) -> str:
    """Return a string that torch/version.py assigns; UnreadableFact where it is None or not there."""
    match = re.search(rf"^{name}(?::[^=\n]*)? *= *(?:'([^'\n]*)'|\"([^\"\n]*)\"|None)", version_file, re.MULTILINE)
    if match is None:
        raise UnreadableFact(f"torch/version.py: it assigns no {name}")
    version = match.group(1) or match.group(2)
    if not version:
        raise UnreadableFact("this torch was built without CUDA" if name == "cuda" else f"torch/version.py: no {name}")
    return version


def choose_nccl(cuda: str, wheels: dict[str, str]) -> str:
    """Return the version of the NCCL wheel for torch's CUDA; others may be installed for other packages."""
    wheel = f"nvidia-nccl-cu{cuda.partition('.')[0]}"
    if wheel not in wheels:
        raise UnreadableFact(f"{wheel} is not installed: torch brings its own NCCL or uses the system's")
    return wheels[wheel]
