"""Every kind of report that a renderer may meet, and one in which every text is hostile."""

from __future__ import annotations

import dataclasses
from enum import Enum
from functools import cache
from typing import Any

from preflight.model.report import Report
from tests.conftest import PROJECT
from tests.kept import compare
from tests.show import eight_gpus, judged
from tests.show.golden_reports import REPORTS as GOLDEN

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    "\"'`|{{7*7}}\x1b[2J\r\n\x00\u202e\ud800]]>${IFS}$(id)"
)
SCREENS = PROJECT / "tests" / "golden" / "first-screens"
KEPT = frozenset({"created_at", "preflight_version"})


@cache
def every_report() -> dict[str, Report]:
    """Return the reports by name; those of a blame class are what the real checks made of a simulated node."""
    made = {name: make() for name, make in GOLDEN.items()}
    made |= {f"blame {blame.value}": make() for blame, make in judged.BLAMED.items()}
    made |= {"below baseline": judged.below_baseline(), "like baseline": judged.like_baseline(),
             "below floor": judged.below_floor(), "waived": judged.waived()}  # fmt: skip
    return made | {"accepted": judged.accepted(), "eight": eight_gpus.healthy(), "cured": eight_gpus.worked_round()}


def hostile(record: Any, text: str = HOSTILE) -> Any:
    """Return the record with every text in it followed by another one."""
    if isinstance(record, str) and not isinstance(record, Enum):
        return record + text
    if isinstance(record, tuple):
        return tuple(hostile(each, text) for each in record)
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        changed = {f.name: hostile(getattr(record, f.name), text) for f in dataclasses.fields(record)
                   if f.name not in KEPT}  # fmt: skip
        return dataclasses.replace(record, **changed)
    return record


def keep_screen(name: str, page: str) -> None:
    """Hold a first screen against the one that was kept; `make golden` keeps it anew."""
    compare(SCREENS / f"{name}.txt", page)
