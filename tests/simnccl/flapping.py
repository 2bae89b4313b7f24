"""simnccl whose faults come and go: `--backend simnccl@flapping`.

    SIMNCCL     the faults
    FLAP_AT     the trials that have them: 0 or 0,3 (their numbers), %2 (every second), 30p (by a chance of 30%)
    FLAP_SEED   of that chance
    FLAP_COUNT  where each rank counts its trials: a path, to which the rank's number is added

A trial is an import of this module, which every child of a rank does once.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

SIMULATED = True


def comes(at: str, number: int, seed: str) -> bool:
    """Tell whether the fault comes in the trial of this number, on all ranks alike."""
    if at.startswith("%"):
        return number % int(at[1:]) == 0
    if at.endswith("p"):
        return Random(f"{seed} {number}").random() < int(at[:-1]) / 100
    return str(number) in at.split(",")


def count(path: Path) -> int:
    """Return how many trials were counted before this one."""
    with path.open("a+", encoding="ascii") as file:
        file.seek(0)
        before = len(file.read())
        file.write("x")
    return before


_number = count(Path(f"{os.environ['FLAP_COUNT']}.{os.environ.get('RANK', '0')}"))
if not comes(os.environ.get("FLAP_AT", "0"), _number, os.environ.get("FLAP_SEED", "0")):
    os.environ["SIMNCCL"] = ""

import tests.simnccl.simnccl  # noqa: E402, F401  registers the backend
