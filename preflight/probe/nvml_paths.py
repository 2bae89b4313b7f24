"""NVML's links and pairs: which NVLinks a GPU has, and how two GPUs reach each other."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.errors import UnreadableFact
from preflight.model.facts import Gap, Gpu, GpuP2p, GpuPath
from preflight.model.gpu import LinkPeer, NvLink
from preflight.probe import nvml_words as words
from preflight.probe.reading import answered, gap_or
from preflight.system.machine import Json

DOWN = "the link is down"


def parse_links(answer: Json) -> tuple[NvLink, ...]:
    """Return the links that are there, up or down."""
    return tuple(_link(link) for link in answered(answer))


def _link(answer: Json) -> NvLink:
    is_active = gap_or(lambda: bool(answered(answer["state"])))
    if is_active is False:
        return NvLink(answer["link"], False, *(Gap(DOWN),) * 6)
    return NvLink(
        link=int(answer["link"]),
        is_active=is_active,
        generation=gap_or(lambda: words.parse_number(words.NVLINK_GENERATIONS, answer["version"], "NVLink's version")),
        peer=gap_or(lambda: words.parse_number(words.PEERS, answer["peer"], "NVLink's peer")),
        peer_bdf=gap_or(lambda: str(answered(answer["peer_bdf"]))),
        replay_errors=gap_or(lambda: int(answered(answer["replay_errors"]))),
        recovery_errors=gap_or(lambda: int(answered(answer["recovery_errors"]))),
        crc_errors=gap_or(lambda: int(answered(answer["crc_errors"]))),
    )


def parse_paths(pairs: Sequence[Json], gpus: Sequence[Gpu]) -> tuple[GpuPath, ...]:
    """Return the path of each pair; NVLinks between the two come before the PCIe level, as in nvidia-smi."""
    by_index = {gpu.nvml_index: gpu for gpu in gpus}
    return tuple(
        GpuPath(pair["a"], pair["b"], gap_or(lambda pair=pair: _level(pair, by_index)))  # type: ignore[misc]
        for pair in pairs
    )


def _level(pair: Json, gpus: dict[int, Gpu]) -> str:
    a, b = gpus[pair["a"]], gpus[pair["b"]]
    count = links_between(a, b)
    return f"NV{count}" if count else words.parse_number(words.ANCESTORS, pair["ancestor"], "common ancestor")


def links_between(a: Gpu, b: Gpu) -> int:
    """Return how many active NVLinks join two GPUs, directly or through switches; UnreadableFact where unknown."""
    for gpu in (a, b):
        if isinstance(gpu.nvlinks, Gap):
            raise UnreadableFact(f"the NVLinks of GPU {gpu.nvml_index} could not be read: {gpu.nvlinks.reason}")
    direct = sum(link.peer_bdf == b.bdf for link in _active(a))
    return direct or min(_to_switches(a), _to_switches(b))


def _active(gpu: Gpu) -> list[NvLink]:
    """Return the links that are up; one whose state could not be read is, where the driver knows its other end."""
    links = () if isinstance(gpu.nvlinks, Gap) else gpu.nvlinks
    return [link for link in links if link.is_active is not False and not isinstance(link.peer, Gap)]


def _to_switches(gpu: Gpu) -> int:
    return sum(link.peer is LinkPeer.SWITCH for link in _active(gpu))


def parse_p2p(pairs: Sequence[Json]) -> tuple[GpuP2p, ...]:
    """Return the driver's statement for each pair and capability."""
    return tuple(
        GpuP2p(
            pair["a"],
            pair["b"],
            *(
                gap_or(lambda each=each: words.parse_number(words.P2P_STATUSES, each, "P2P status"))  # type: ignore[misc]
                for each in pair["p2p"]
            ),
        )
        for pair in pairs
    )
