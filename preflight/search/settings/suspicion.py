"""The settings that a failed default trial makes suspect: by its errors, by what it used, and by broken GPU pairs.

Suspicion orders the search and decides nothing: a setting is recommended only if a trial without it failed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

from preflight.model.error_texts import TEXTS, any_of
from preflight.model.transport import CarrierKind, texts_of
from preflight.model.trial import Candidate, Outcome, Setting, TrialResult

# Names of what is in use: in which direction to look. Errors make settings suspect themselves (model/error_texts.py).
WORDS = {
    "shm": r"/dev/shm|shared memory segment|via SHM",
    "p2p": r"\bp2p\b|peer access|peer mapping|illegal memory access|nvlink",
    "nvls": r"nvls|multicast|nvlink sharp|fabric.?manager",
    "ib": r"\bibv_|net/ib|infiniband|mlx\d|\broce\b|ib_|local catastrophic|network ib",
    "plugin": r"net plugin|net_plugin|libnccl-net|libfabric|\bofi\b|aws-ofi",
    "cumem": r"cumem|fabric handle|posix file descriptor",
    "mnnvl": r"mnnvl|imex",
    "socket": r"(?<!network )socket|bootstrap(?! \d)|connection refused|no route to host",  # not NCCL's own timings
    "topology": r"NCCL_TOPO_FILE set by environment",
    "conf": r"nccl\.conf|invalid usage|invalid argument",
}
PORTS = "NCCL_IB_HCA"
# What is said of a queue pair, a call of the verbs library or a port; never of a port that NCCL takes into use.
IB_FAILED = tuple(name for name in TEXTS if name.startswith("ib."))


@functools.cache
def _words(family: str) -> re.Pattern[str]:
    errors = (text.pattern for text in TEXTS.values() if family in text.families)
    return re.compile("|".join((WORDS[family], *errors)), re.IGNORECASE | re.MULTILINE)


@functools.lru_cache(maxsize=1)  # the default's are asked for before every step, and a large job's logs take a second
def _families_in(text: str) -> frozenset[str]:
    return frozenset(family for family in WORDS if _words(family).search(text))


def suspected_families(default: TrialResult | None, broken_pairs: Sequence[object], named: Iterable[str]) -> set[str]:
    """Return the families of settings under suspicion; `named` has those that other checks found."""
    found = set(named)
    if broken_pairs:
        found.add("p2p")
    if default is not None:
        words = [text for end in default.ranks for text in (end.detail, *(line.text for line in end.log))]
        text = "\n".join((default.problem, *words, *texts_of(default.transport)))
        found |= _families_in(text)
        if default.outcome is Outcome.WRONG_DATA:
            found |= {"p2p", "nvls"}  # the ways on which nothing checks that the bytes arrived
    return found


def ib_is_suspect(default: TrialResult) -> bool:
    """Return whether a failed default trial points to InfiniBand: NCCL's log names it, or the data used it."""
    return bool(_ib_errors(default)) or any(
        each.kind is CarrierKind.PATH and each.name.startswith("NET/IB") for each in default.transport
    )


def port_sets(candidates: Sequence[Candidate], default: TrialResult) -> list[Candidate]:
    """Return the candidates that leave out RDMA ports; first those that leave out the ports in NCCL's log.

    If the log names ports, the candidate with the most other ports comes first; else a single port does.
    """
    errors = " ".join(_ib_errors(default))

    def order(candidate: Candidate) -> tuple[bool, int]:
        hcas = [place.partition(":")[0] for place in dict(candidate.env)[PORTS].removeprefix("=").split(",")]
        is_named = any(re.search(rf"(?<!\w){re.escape(hca)}(?!\w)", errors) for hca in hcas)
        return is_named, -len(hcas) if errors else len(hcas)

    return sorted((each for each in candidates if [name for name, _ in each.env] == [PORTS]), key=order)


def _ib_errors(default: TrialResult) -> list[str]:
    """Return the lines of the ranks that tell of a failure of InfiniBand."""
    lines = [line for end in default.ranks for line in (*end.detail.splitlines(), *(each.text for each in end.log))]
    return [line for line in lines if any_of(*IB_FAILED).search(line)]


def by_suspicion(settings: Sequence[Setting], families: set[str]) -> tuple[Setting, ...]:
    """Return the settings with the suspect ones last; otherwise they keep the planned order."""
    return tuple(sorted(settings, key=lambda setting: bool(families.intersection(setting.families))))
