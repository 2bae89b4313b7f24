"""Read the supported speeds of an Ethernet port and its peer, as `ethtool INTERFACE` does.

The query needs no special rights.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Iterable
from functools import partial

from preflight.errors import UnreadableFact
from preflight.system.interfaces import ask_rdma_interfaces
from preflight.system.machine import Json

SIOCETHTOOL = 0x8946  # linux/sockios.h
GLINKSETTINGS = 0x4C  # ETHTOOL_GLINKSETTINGS
IFREQ = struct.Struct("16sP16x")  # struct ifreq: the name, and a pointer to the request
HEAD = struct.Struct("=II7xb4B28x")  # struct ethtool_link_settings; the 8-bit number counts 32-bit words of a mask
MOST_WORDS = 127
NO_SPEED = (0, 0xFFFFFFFF)  # SPEED_UNKNOWN
# enum ethtool_link_mode_bit_indices, from 10 Gbit/s: the first and last bit, and the speed of these modes in Gbit/s
MODES = (
    (12, 12, 10), (18, 20, 10), (21, 22, 20), (23, 26, 40), (27, 30, 56), (31, 33, 25), (34, 35, 50), (36, 39, 100),
    (40, 40, 50), (42, 46, 10), (52, 56, 50), (57, 61, 100), (62, 66, 200), (69, 73, 400), (75, 79, 100),
    (80, 84, 200), (85, 89, 400), (93, 98, 800), (103, 108, 200), (109, 114, 400), (115, 120, 800), (121, 124, 1600),
)  # fmt: skip


Ioctl = Callable[[socket.socket, int, bytes], object]


def port_speeds(names: Iterable[str] | None = None, ioctl: Ioctl = fcntl.ioctl) -> Json:
    """Return the speeds of each network interface of an RDMA adapter in Gbit/s, by interface name.

    A value is `{now, own, both}` or `{"unreadable": reason}`. `now` is the current speed. `own` has the speeds that the
    port supports. `both` has the speeds that both ends support.
    """
    # `now` is the link's speed. `own` lists the speeds that the port supports. `both` lists the speeds that both ends
    # offered, or is null if the ends did not negotiate.
    return ask_rdma_interfaces(partial(_asked, ioctl), names)


def _asked(ioctl: Ioctl, name: str) -> Json:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as kernel:
            words = -HEAD.unpack_from(_answer(ioctl, kernel, name, 0))[2]  # it tells how long its masks are
            return parse_masks(_answer(ioctl, kernel, name, words))
    except (OSError, UnreadableFact) as error:
        return {"unreadable": f"speeds of {name}: {getattr(error, 'strerror', None) or error}"}


def _answer(ioctl: Ioctl, kernel: socket.socket, name: str, words: int) -> bytes:
    if not 0 <= words <= MOST_WORDS:
        raise UnreadableFact("the driver does not report this value")
    space = array.array("B", bytes(HEAD.size + 3 * 4 * MOST_WORDS))
    HEAD.pack_into(space, 0, GLINKSETTINGS, 0, words, 0, 0, 0, 0)
    ioctl(kernel, SIOCETHTOOL, IFREQ.pack(os.fsencode(name), space.buffer_info()[0]))
    return space.tobytes()


def parse_masks(answer: bytes) -> Json:
    """Return `{now, own, both}` (see `port_speeds`) from the kernel's answer.

    Raise UnreadableFact if the answer has no speeds.
    """
    _, mbit_s, words, *_ = HEAD.unpack_from(answer) if len(answer) >= HEAD.size else (0, 0, 0)
    if words <= 0 or len(answer) < HEAD.size + 3 * 4 * words or mbit_s in NO_SPEED:
        raise UnreadableFact("the driver does not report this value")
    own, offered, peer = (_bits(answer[HEAD.size + i * 4 * words :], words) for i in range(3))
    return {"now": mbit_s / 1000, "own": _speeds(own), "both": _speeds(offered & peer) if _speeds(peer) else None}


def _bits(mask: bytes, words: int) -> int:
    """Return the bit mask `mask` as one integer.

    The mask has `words` words of 32 bits, each in the byte order of this machine.
    """
    return sum(word << 32 * i for i, word in enumerate(struct.unpack_from(f"={words}I", mask)))


def _speeds(bits: int) -> list[int]:
    return sorted({speed for first, last, speed in MODES if bits >> first & ((1 << last - first + 1) - 1)})
