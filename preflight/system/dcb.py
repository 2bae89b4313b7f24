"""Read how an Ethernet interface treats traffic classes (data center bridging, DCB).

The query needs no special rights.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

from preflight.errors import UnreadableFact
from preflight.system.interfaces import ask_rdma_interfaces
from preflight.system.machine import Json

RTM_GETDCB, NLM_F_REQUEST, NLMSG_ERROR = 78, 1, 2
IEEE_GET = 21  # enum dcbnl_commands
IFNAME, IEEE = 1, 13  # enum dcbnl_attrs
PFC, APP_TABLE = 2, 3  # enum ieee_attrs
APP = 1  # enum ieee_attrs_app
BY_DSCP = 5  # IEEE_8021QAZ_APP_SEL_DSCP
HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
DCBMSG = struct.Struct("=BBH")  # family, command, padding
ATTRIBUTE = struct.Struct("=HH")  # struct nlattr: length, type
PFC_HEAD = struct.Struct("=BB")  # struct ieee_pfc: how many priorities it can have, and which have it
APP_ROW = struct.Struct("=BBH")  # struct dcb_app: selector, priority, protocol
TYPE_MASK = 0x3FFF  # without the flags "nested" and "network byte order"
ANSWER_BYTES = 1 << 16
WAIT_S = 1.0  # for the answer; the kernel may take longer to accept the question, which the probe's limit bounds


def traffic_classes() -> Json:
    """Return the traffic classes of each network interface of an RDMA adapter, by interface name.

    A value is `{pfc, dscp}` or `{"unreadable": reason}`. `pfc` has the priorities with priority flow control. `dscp`
    has pairs of DSCP and priority.
    """
    return ask_rdma_interfaces(_asked)


def _asked(name: str) -> Json:
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as kernel:
            kernel.settimeout(WAIT_S)
            kernel.send(request(name))
            return parse_answer(kernel.recv(ANSWER_BYTES))
    except (OSError, UnreadableFact) as error:
        return {"unreadable": f"traffic classes of {name}: {getattr(error, 'strerror', None) or error}"}


def request(name: str) -> bytes:
    """Return the netlink message (bytes) that asks for the traffic classes of the interface `name`."""
    value = os.fsencode(name) + b"\0"
    attribute = ATTRIBUTE.pack(ATTRIBUTE.size + len(value), IFNAME) + value + b"\0" * (-len(value) % 4)
    body = DCBMSG.pack(socket.AF_UNSPEC, IEEE_GET, 0) + attribute
    return HEADER.pack(HEADER.size + len(body), RTM_GETDCB, NLM_F_REQUEST, 1, 0) + body


def parse_answer(data: bytes) -> dict[str, Json]:
    """Return `{pfc, dscp}` from `data`, a reply of the kernel. Raise UnreadableFact if the reply has no such values."""
    if len(data) < HEADER.size + DCBMSG.size:
        raise UnreadableFact("the kernel's answer is cut off")
    if HEADER.unpack_from(data)[1] == NLMSG_ERROR:
        code = -struct.unpack_from("=i", data, HEADER.size)[0]
        raise UnreadableFact(os.strerror(code) if 0 < code < 4096 else f"the kernel's answer is an error: {code}")
    answer = _attributes(data[HEADER.size + DCBMSG.size :])
    ieee = dict(_attributes(dict(answer).get(IEEE, b"")))
    if len(ieee.get(PFC, b"")) < PFC_HEAD.size:
        raise UnreadableFact("the driver does not report which priorities have flow control")
    enabled = PFC_HEAD.unpack_from(ieee[PFC])[1]
    rows = [APP_ROW.unpack_from(row) for kind, row in _attributes(ieee.get(APP_TABLE, b"")) if _is_app(kind, row)]
    return {
        "pfc": [priority for priority in range(8) if enabled >> priority & 1],
        "dscp": sorted([dscp, priority] for selector, priority, dscp in rows if selector == BY_DSCP),
    }


def _is_app(kind: int, row: bytes) -> bool:
    return kind == APP and len(row) >= APP_ROW.size


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the value of each netlink attribute in `data`.

    The attributes after a damaged length are left out.
    """
    at = 0
    while at + ATTRIBUTE.size <= len(data):
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if length < ATTRIBUTE.size or at + length > len(data):
            return
        yield kind & TYPE_MASK, data[at + ATTRIBUTE.size : at + length]
        at += length + -length % 4
