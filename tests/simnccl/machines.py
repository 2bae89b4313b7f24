"""The kept captures as the simulation reads them: the facts of a report, and the GPUs that ranks stand for."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from preflight.check.survey import survey_capture
from preflight.model.codec import encode

CAPTURES = Path(__file__).parent.parent / "machines"


@functools.cache
def node(name: str) -> dict[str, Any]:
    """Return the facts of a kept capture; not to be changed."""
    return encode(survey_capture((CAPTURES / f"{name}.json").read_text()).node)


def facts(name: str, *gpus: int) -> dict[str, Any]:
    """Return what PREFLIGHT_MACHINE holds for ranks on these GPUs."""
    return {"node": node(name), "gpus": list(gpus)}
