"""Find the settings that may have caused a failure with the default settings.

The result decides only the order of the search.
"""
# The evidence is in the errors, in the features that were in use, and in pairs of GPUs with failed copies.

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

from preflight.model.error_texts import TEXTS
from preflight.model.transport import texts_of
from preflight.model.trial import Outcome, Setting, TrialResult

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


@functools.cache
def _words(family: str) -> re.Pattern[str]:
    errors = (text.pattern for text in TEXTS.values() if family in text.families)
    return re.compile("|".join((WORDS[family], *errors)), re.IGNORECASE | re.MULTILINE)


@functools.lru_cache(maxsize=1)  # the default's are asked for before every step, and a large job's logs take a second
def _families_in(text: str) -> frozenset[str]:
    return frozenset(family for family in WORDS if _words(family).search(text))


def suspected_families(default: TrialResult | None, broken_pairs: Sequence[object], named: Iterable[str]) -> set[str]:
    """Return the families of settings (such as "p2p" or "ib") that may be at fault.

    `broken_pairs` has the pairs of GPUs with failed copies. `named` has the families that other checks found.
    """
    # `default` is the failed test run with default settings.
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


def by_suspicion(settings: Sequence[Setting], families: set[str]) -> tuple[Setting, ...]:
    """Return `settings` with the settings of the given `families` at the end.

    The order is otherwise unchanged.
    """
    return tuple(sorted(settings, key=lambda setting: bool(families.intersection(setting.families))))
