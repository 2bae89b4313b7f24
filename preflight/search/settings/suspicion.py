"""Which settings a failed default makes suspect: by its errors' words, by what it used when it failed, by broken pairs.

Suspicion orders the search and decides nothing: a setting is recommended only where a trial without it failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from preflight.model.transport import CarrierKind, texts_of
from preflight.model.trial import Candidate, Outcome, Setting, TrialResult

# Words of NCCL's, torch's and the kernel's errors (facts 1.1, 2.2, 2.3, 7), in lower case, by family of settings.
WORDS = (
    ("shm", re.compile(r"/dev/shm|shared memory segment|no space left|sigbus|via shm")),
    ("p2p", re.compile(r"\bp2p\b|peer access|peer mapping|illegal memory access|via p2p|nvlink")),
    ("nvls", re.compile(r"nvls|multicast|nvlink sharp|fabric.?manager")),
    ("ib", re.compile(r"\bibv_|net/ib|infiniband|mlx\d|\broce\b|ib_|local catastrophic|via net/ib|network ib")),
    ("plugin", re.compile(r"net plugin|net_plugin|libnccl-net|libfabric|\bofi\b|aws-ofi")),
    ("cumem", re.compile(r"cumem|cumemcreate|cumemimport|fabric handle|posix file descriptor")),
    ("mnnvl", re.compile(r"mnnvl|imex")),
    ("socket", re.compile(r"no socket interface|socket|bootstrap|connection refused|no route to host|via net/socket")),
    ("conf", re.compile(r"nccl\.conf|invalid usage|invalid argument")),
)
PORTS = "NCCL_IB_HCA"
# What NCCL says of a queue pair, a call of the verbs library or a port; never of a port that it takes into use.
IB_FAILED = re.compile(
    r"Got completion (?:from|with)|\bibv_\w+|async (?:\w+ )?event ?:|local catastrophic|transport retry counter", re.I
)
# The causes that `explain` names, as far as a setting helps.
CAUSES = {
    "p2p_broken": "p2p",
    "shm_too_small": "shm",
    "ib_broken": "ib",
    "nccl_plugin_problem": "plugin",
    "nvlink_or_fabric_manager": "nvls",
    "wrong_socket_interface": "socket",
}


def suspected_families(default: TrialResult | None, broken_pairs: Sequence[object], named: Iterable[str]) -> set[str]:
    """Return the families under suspicion; `named` holds families or names of causes that others found."""
    found = {CAUSES.get(each, each) for each in named}
    if broken_pairs:
        found.add("p2p")
    if default is not None:
        words = [text for end in default.ranks for text in (end.detail, *(line.text for line in end.log))]
        text = "\n".join((default.problem, *words, *texts_of(default.transport))).lower()
        found |= {family for family, pattern in WORDS if pattern.search(text)}
        if default.outcome is Outcome.WRONG_DATA:
            found |= {"p2p", "nvls"}  # the ways on which nothing checks that the bytes arrived
    return found


def ib_is_suspect(default: TrialResult) -> bool:
    """Tell whether a failed default accuses InfiniBand: NCCL's log says so, or its data went through it."""
    return bool(_ib_errors(default)) or any(
        each.kind is CarrierKind.PATH and each.name.startswith("NET/IB") for each in default.transport
    )


def port_sets(candidates: Sequence[Candidate], default: TrialResult) -> list[Candidate]:
    """Return the candidates that leave RDMA ports out, those first that leave out what NCCL's log names.

    Where it names some, the most ports that are not among them come first; else one port alone.
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
    return [line for line in lines if IB_FAILED.search(line)]


def by_suspicion(settings: Sequence[Setting], families: set[str]) -> tuple[Setting, ...]:
    """Return the settings with the suspects last, otherwise in the order in which they were planned."""
    return tuple(sorted(settings, key=lambda setting: bool(families.intersection(setting.families))))
