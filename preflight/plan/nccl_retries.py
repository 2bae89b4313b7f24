"""How long NCCL retries before it reports an error of its own: a shorter timeout would hide that error."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.model.strtoll import parsed_integer

IB_UNIT_S = 4.096e-6  # of the local ACK timeout: 4.096 us * 2**NCCL_IB_TIMEOUT (InfiniBand specification)
IB_TIMEOUT, IB_RETRY_CNT = 20, 7  # NCCL's defaults since 2.23; before, the exponent was smaller
SOCKET_RETRY_CNT, SOCKET_SLEEP_MS = 34, 100
LONGEST_S = 86400.0 * 365


def nccl_report_s(settings: Mapping[str, str]) -> tuple[float, str]:
    """Return the seconds after which NCCL has given up on InfiniBand or on a socket, and how they come about."""
    exponent = _setting(settings, "NCCL_IB_TIMEOUT", IB_TIMEOUT)
    retries = _setting(settings, "NCCL_IB_RETRY_CNT", IB_RETRY_CNT)
    ib_s = ib_retries_s(exponent, retries)
    count = _setting(settings, "NCCL_SOCKET_RETRY_CNT", SOCKET_RETRY_CNT)
    socket_s = socket_retries_s(count, _setting(settings, "NCCL_SOCKET_RETRY_SLEEP_MSEC", SOCKET_SLEEP_MS))
    ib = f"{ib_s:.0f} s" if ib_s else "for ever (NCCL_IB_TIMEOUT says so), which no timeout can wait for"
    return max(ib_s, socket_s), f"its retries take {socket_s:.0f} s on sockets, on InfiniBand {ib}"


def ib_retries_s(exponent: int, retries: int) -> float:
    """Return how long InfiniBand's retries take; 0.0 where they never end (an exponent of 0 or from 32 on)."""
    if not 0 < exponent < 32:
        return 0.0
    return min(LONGEST_S, IB_UNIT_S * float(1 << exponent) * max(0, min(retries, IB_RETRY_CNT)))


def socket_retries_s(count: int, sleep_ms: int) -> float:
    """Return how long NCCL tries to connect a socket: it sleeps longer before each try, by the same step."""
    count, sleep_ms = max(0, min(count, 10**6)), max(0, min(sleep_ms, 10**9))
    return min(LONGEST_S, sleep_ms / 1000 * count * (count + 1) / 2)


def _setting(settings: Mapping[str, str], name: str, default: int) -> int:
    """Return a variable as NCCL reads it; an empty one means the default."""
    value = settings.get(name, "")
    return parsed_integer(value)[0] if value else default
