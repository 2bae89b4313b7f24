"""All conservative settings of a node in the order in which a search gives them up again."""

from __future__ import annotations

from preflight.model.trial import LeftOut, Setting
from preflight.plan.ground import Ground
from preflight.plan.settings import configuration, gpu_links, interfaces, rdma


def conservative_settings(ground: Ground) -> tuple[tuple[Setting, ...], tuple[LeftOut, ...]]:
    """Return the settings that the facts allow, the first to be given up first, and those left out, with the reason.

    Where one fault has several cures, the last of them in this order is what remains. So what costs much stands before
    what costs little and cures the same: all RDMA before some ports of it, P2P before the kind of its memory.
    """
    planned = [
        *rdma.network(ground),
        *gpu_links.shm(ground),
        *rdma.ports(ground),
        *rdma.gid(ground),
        *interfaces.interfaces(ground),
        *interfaces.family(ground),
        *gpu_links.p2p(ground),
        *gpu_links.mnnvl(ground),
        *gpu_links.cumem(ground),
        *gpu_links.nvls(ground),
        *configuration.files(ground),
    ]
    settings = tuple(each for each in planned if isinstance(each, Setting))
    return settings, tuple(each for each in planned if isinstance(each, LeftOut))
