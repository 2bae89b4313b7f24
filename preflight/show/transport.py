"""The section on the data paths of a test run: the path of each rank pair, the network and the algorithms."""

from __future__ import annotations

from collections.abc import Iterable

from preflight.model.report import Report
from preflight.model.transport import NVLS, Carrier, CarrierKind
from preflight.model.trial import DEFAULT, TrialResult
from preflight.search.settings.duel import is_sound
from preflight.search.settings.environment import ALGORITHMS
from preflight.search.settings.search import shown_name
from preflight.show.document import Block, Items, section

TITLES = {
    CarrierKind.NETWORK: "network",
    CarrierKind.NETIF: "interfaces",
    CarrierKind.HCA: "HCAs",
    CarrierKind.ALGORITHM: "algorithms",
}
PAIRS_SHOWN = 12


def transport_section(report: Report) -> list[Block]:
    """Return the section on the data paths of a test run, or [] if no log names a path."""
    trial = _telling(report)
    if trial is None:
        return []
    paths: dict[str, list[tuple[int, ...]]] = {}
    names: dict[CarrierKind, list[str]] = {}
    for carrier in (*trial.transport, *_algorithms(report.trials)):
        if carrier.is_pair:
            paths.setdefault(carrier.name, []).append(tuple(sorted(carrier.ranks)))
        else:
            names.setdefault(carrier.kind, []).append(carrier.name)
    items = [(path, _pairs_text(sorted({*of}))) for path, of in sorted(paths.items())]
    if NVLS in trial.transport:
        items.append((NVLS.name, "NCCL set NVLS up, so the NVSwitch may sum large all-reduces"))
    items += [(title, ", ".join(names[kind])) for kind, title in TITLES.items() if kind in names]
    return section(f"What carried the data (trial {shown_name(trial.candidate)})", Items(items))


def _telling(report: Report) -> TrialResult | None:
    """Return the trial with the default settings if this trial works.

    Otherwise, return the working trial with the fewest settings. Trials without a known path between two ranks are
    ignored.
    """
    sound = [
        trial for trial in report.trials if is_sound(trial) and any(carrier.is_pair for carrier in trial.transport)
    ]
    default = next((trial for trial in sound if trial.candidate == DEFAULT), None)
    return default or min((t for t in sound if t.env), key=lambda t: (len(t.env), t.candidate), default=None)


def _algorithms(trials: Iterable[TrialResult]) -> tuple[Carrier, ...]:
    extra = next((trial for trial in trials if trial.candidate == ALGORITHMS.name), None)
    carriers = extra.transport if extra is not None else ()
    return tuple(carrier for carrier in carriers if carrier.kind is CarrierKind.ALGORITHM)


def _pairs_text(found: list[tuple[int, ...]]) -> str:
    shown = ", ".join(f"{a}-{b}" for a, b in found[:PAIRS_SHOWN])
    more = f" and {len(found) - PAIRS_SHOWN} more" if len(found) > PAIRS_SHOWN else ""
    return f"pair{'s' * (len(found) > 1)} {shown}{more}"
