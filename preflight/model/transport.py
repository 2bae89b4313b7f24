"""The transports that carried data in a test run, and their text form in a report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from preflight.model.word import Word


class Transport(Word):
    """How data moves between two ranks, in NCCL's terms."""

    P2P = "P2P"
    SHM = "SHM"
    NET = "NET"
    COLLNET = "COLLNET"


# `(3)` names the rank on whose card the data leave (PXN), `(PCI)` that GPUDirect goes by PCIe on a machine with C2C.
_DEVICE = r"[A-Za-z][\w .+-]{0,40}?/\d{1,4}(?:\(\d{1,7}\))?(?:/GDRDMA)?(?:\(PCI\))?(?:/Shared)?"
# How NCCL (2.4 to 2.32) words each of them; what a new release says goes here. Linear, as the log's patterns are.
WORDS = {
    Transport.P2P: (
        r"P2P/(?:CUMEM|MNNVL|IPC|direct pointer|indirect/\d{1,7}(?:\[[0-9a-f]{1,16}\])?)(?:/read)?(?:/CE)?"
    ),
    Transport.SHM: r"SHM/(?:direct|CE)(?:/(?:direct|CE))?|SHM\b|direct shared memory",
    Transport.NET: rf"NET/{_DEVICE}",
    Transport.COLLNET: rf"COLLNET/{_DEVICE}",
}
_BETWEEN = "|".join(WORDS[way] for way in (Transport.P2P, Transport.SHM, Transport.NET))
# 2.4: `Ring 00 : 0[1] -> 1[3] via P2P/IPC`; later `Channel 00/0 : 0[1b000] -> 1[1c000] [send] via NET/IB/0/GDRDMA`
PRINTED_PATH = re.compile(
    r"(?:Channel|Ring|Tree) \d{1,4}(?:/\d{1,4})? ?: "
    r"(\d{1,7})(?:\[[0-9a-f]{1,16}\])? -> (\d{1,7})(?:\[[0-9a-f]{1,16}\])?"
    rf"(?: \[(?:send|receive)\])? via ({_BETWEEN}|[A-Z][A-Z0-9]{{1,15}}/\w{{1,32}})"
)


class CarrierKind(Word):
    """The kind of a `Carrier`, such as a path or a port.

    In the report, the text of a `Carrier` starts with this value.
    """

    PATH = ""  # between two ranks, or of one that hands its data to a switch
    NETWORK = "network "
    NETIF = "netif "
    HCA = "hca "
    ALGORITHM = "algorithm "  # of a collective at a size
    TCP = "TCP/"  # the interface of a connection: gloo's sockets
    NOT_LOADED = "plugin not loaded: "  # its kind and name, as `NET aws-ofi`
    NVLS = "NVLS"  # its multicast memory was set up
    OTHER = "other"  # a text that is none of these


PATH = re.compile(r"(\d{1,7})(?:>(\d{1,7}))? via (.+)", re.ASCII | re.DOTALL)
NAMED = (
    CarrierKind.NETWORK, CarrierKind.NETIF, CarrierKind.HCA, CarrierKind.ALGORITHM, CarrierKind.TCP,
    CarrierKind.NOT_LOADED,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Carrier:
    """A path, network interface, network or port that carried data between ranks."""

    kind: CarrierKind
    name: str  # of a path as NCCL prints it
    ranks: tuple[int, ...] = ()  # of a path: from and to, or the one that hands its data to a switch

    @property
    def text(self) -> str:
        """The text in the report, such as `0>1 via P2P/CUMEM`, `netif eth0` or `NVLS`."""
        if self.kind is CarrierKind.PATH:
            return f"{'>'.join(map(str, self.ranks))} via {self.name}"
        return f"{self.kind.value}{self.name}" if self.kind in NAMED else self.name

    @classmethod
    def from_text(cls, text: str) -> Carrier:
        """Return the `Carrier` that a text from a report describes."""
        if match := PATH.fullmatch(text):
            return cls(CarrierKind.PATH, match[3], tuple(int(rank) for rank in match.groups()[:2] if rank))
        for kind in NAMED:
            if text.startswith(kind.value):
                return cls(kind, text.removeprefix(kind.value))
        return NVLS if text == NVLS.name else cls(CarrierKind.OTHER, text)

    @property
    def is_pair(self) -> bool:
        """Return whether the carrier is a path from one rank to another."""
        return len(self.ranks) == 2

    @property
    def transport(self) -> Transport | None:
        """The transport of a path, or None if the transport is not known.

        The value is also None if the carrier is not a path.
        """
        return transport_of(self.name) if self.kind is CarrierKind.PATH else None


NVLS = Carrier(CarrierKind.NVLS, "NVLS")


def transport_of(detail: str) -> Transport | None:
    """Return the transport in NCCL's description of a path, or None if the description is not known."""
    return next(
        (transport for transport, words in WORDS.items() if re.match(rf"{transport.value}\b|{words}", detail)), None
    )


def carriers_from(texts: Iterable[str]) -> tuple[Carrier, ...]:
    """Return a `Carrier` for each text in `texts`, without duplicates, sorted by text."""
    return tuple(Carrier.from_text(text) for text in sorted(set(texts)))


def texts_of(carriers: Iterable[Carrier]) -> tuple[str, ...]:
    """Return the text of each `Carrier`, as in the report."""
    return tuple(carrier.text for carrier in carriers)


def path_names(carriers: Iterable[Carrier]) -> tuple[str, ...]:
    """Return the names of the paths in `carriers`, such as `NET/IB/0`, without duplicates."""
    return tuple(sorted({carrier.name for carrier in carriers if carrier.kind is CarrierKind.PATH}))
