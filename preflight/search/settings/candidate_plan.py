"""Plan the NCCL configurations to test on one node, with the reason for each omitted configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from preflight.model.facts import SETTABLE, Gap, NodeFacts, inherited_value
from preflight.model.trial import DEFAULT, Candidate, LeftOut, Scope, Setting, TrialResult
from preflight.search.settings import gpu_links, interfaces, rdma
from preflight.search.settings.candidates import nccl_candidates
from preflight.search.settings.duel import is_sound
from preflight.search.settings.node_view import NodeView, Planned, setting, view_of
from preflight.search.settings.speed import speed_candidates

CONF = "nccl.conf"
SYSTEM_FILE = "/etc/nccl.conf"
NOTHING = "/dev/null"  # an empty file in place of the user's; NCCL still reads /etc/nccl.conf
CONF_FILE_SINCE = (2, 23)
TOPOLOGY_FILE = "NCCL_TOPO_FILE"


@dataclass(frozen=True, slots=True)
class NcclPlan:
    """The NCCL configurations to test, the workarounds to test if the defaults fail, and the omitted settings."""

    candidates: tuple[Candidate, ...]
    settings: tuple[Setting, ...]
    left_out: tuple[LeftOut, ...]  # of the candidates
    settings_left_out: tuple[LeftOut, ...] = ()

    def left_out_of(self, trials: Sequence[TrialResult]) -> tuple[LeftOut, ...]:
        """Return the omitted configurations. If the default settings failed, also return the omitted workarounds."""
        searched = any(trial.candidate == DEFAULT and not is_sound(trial) for trial in trials)
        return (*self.left_out, *self.settings_left_out) if searched else self.left_out


def plan_nccl(
    node: NodeFacts, gpus: tuple[int, ...], inherited: tuple[tuple[str, str], ...], *, for_speed: bool
) -> NcclPlan:
    """Return the plan for the GPUs with the NVML indices `gpus`.

    If `for_speed` is true, the plan also has configurations that may be faster.
    """
    view = view_of(node, gpus)
    always, unread = nccl_candidates(inherited)
    settings, unfit = conservative_settings(view)
    fast, slow = speed_candidates(view) if for_speed else ((), ())
    return NcclPlan((*always, *fast), settings, (*unread, *slow), unfit)


def conservative_settings(view: NodeView) -> tuple[tuple[Setting, ...], tuple[LeftOut, ...]]:
    """Return the workarounds that can be tested on this node, and the omitted workarounds.

    Expensive workarounds come first.
    """
    # The search drops the workarounds in the order of the result, so that the search keeps the cheapest workaround for
    # a fault.
    planned = [
        *rdma.network(view), *gpu_links.shm(view), *rdma.ports(view), *rdma.gid(view),
        *interfaces.interfaces(view), *interfaces.family(view),
        *gpu_links.p2p(view), *gpu_links.mnnvl(view), *gpu_links.cumem(view), *gpu_links.nvls(view),
        *_conf_files(view), *_topology_file(view),
    ]  # fmt: skip
    settings = tuple(each for each in planned if isinstance(each, Setting))
    return settings, tuple(each for each in planned if isinstance(each, LeftOut))


def _conf_files(view: NodeView) -> Iterator[Planned]:
    """Yield a setting that overrides the content of NCCL's configuration files with NCCL's defaults.

    Yield nothing if these files set nothing. Environment variables take precedence over the files. For numbers, every
    version of NCCL takes an empty value as the default. For NCCL_NET, an empty value is not the default: "" matches no
    network (net.cc 2.18.6, plugin/net.cc 2.27.7).
    """
    entries = view.node.nccl_conf
    if isinstance(entries, Gap):
        yield LeftOut(CONF, f"the files that NCCL reads could not be read: {entries.reason}")
        return
    by_file = view.version is None or view.version >= CONF_FILE_SINCE
    named = [entry for entry in entries if SETTABLE.fullmatch(entry.name)]
    named = [entry for entry in named if entry.name != "NCCL_NET" or (by_file and entry.file != SYSTEM_FILE)]
    if not named:
        return
    emptied = [entry.name for entry in named if entry.file == SYSTEM_FILE or not by_file]
    env = dict.fromkeys(emptied, "")
    if len(emptied) < len(named):
        env["NCCL_CONF_FILE"] = NOTHING
    yield Setting(CONF, tuple(sorted(env.items())), ("conf",), Scope.ONE_NODE)


def _topology_file(view: NodeView) -> Iterator[Planned]:
    """Yield a setting that removes an inherited topology file.

    All other trials keep the file, and a stale topology file prevents NCCL from starting.
    """
    if inherited_value(view.node, TOPOLOGY_FILE):
        yield setting(TOPOLOGY_FILE, "")
