"""What carried the data of the trial that counts: the way of every pair of ranks, the network, the algorithms."""

from __future__ import annotations

import re
from collections.abc import Iterable

from preflight.model.report import Report
from preflight.model.trial import DEFAULT, TrialResult
from preflight.plan.duel import is_sound
from preflight.plan.environment import ALGORITHMS
from preflight.render.text import Style, clean, heading, pairs

WAY = re.compile(r"(\d{1,7})>(\d{1,7}) via (.+)")
KINDS = {"network ": "network", "netif ": "interfaces", "hca ": "HCAs", "algorithm ": "algorithms"}
PAIRS_SHOWN = 12


def transport_section(report: Report, style: Style) -> list[str]:
    """Return the section; nothing where no log told a pair's way, as gloo's never do."""
    trial = _telling(report)
    if trial is None:
        return []
    ways: dict[str, list[tuple[int, int]]] = {}
    told: dict[str, list[str]] = {}
    for entry in (*trial.transport, *_algorithms(report.trials)):
        if match := WAY.fullmatch(entry):
            a, b = sorted((int(match[1]), int(match[2])))
            ways.setdefault(match[3], []).append((a, b))
        for start, kind in KINDS.items():
            if entry.startswith(start):
                told.setdefault(kind, []).append(entry.removeprefix(start))
    items = [(clean(way), _pairs_text(sorted({*of}))) for way, of in sorted(ways.items())]
    if "NVLS" in trial.transport:
        items.append(("NVLS", "its tree was made: large all-reduces may be summed in the NVSwitch"))
    items += [(kind, clean(", ".join(told[kind]))) for kind in KINDS.values() if kind in told]
    return [*heading(f"What carried the data (trial {clean(trial.candidate)})", style), *pairs(items, style.width)]


def _telling(report: Report) -> TrialResult | None:
    """Return the default where it works, else what works with the fewest settings."""
    sound = [
        trial for trial in report.trials if is_sound(trial) and any(WAY.fullmatch(each) for each in trial.transport)
    ]
    default = next((trial for trial in sound if trial.candidate == DEFAULT), None)
    return default or min((t for t in sound if t.env), key=lambda t: (len(t.env), t.candidate), default=None)


def _algorithms(trials: Iterable[TrialResult]) -> tuple[str, ...]:
    extra = next((trial for trial in trials if trial.candidate == ALGORITHMS.name), None)
    return tuple(each for each in extra.transport if each.startswith("algorithm ")) if extra is not None else ()


def _pairs_text(found: list[tuple[int, int]]) -> str:
    shown = ", ".join(f"{a}-{b}" for a, b in found[:PAIRS_SHOWN])
    more = f" and {len(found) - PAIRS_SHOWN} more pairs" if len(found) > PAIRS_SHOWN else ""
    return f"ranks {shown}{more}"
