"""The configurations to test on this node, and the reason for each omitted configuration."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.facts import Netif, NetifKind
from preflight.model.trial import AS_IS, DEFAULT, Candidate, LeftOut, Scope
from preflight.search.settings.environment import matters

LINK_LOCAL = ("169.254.", "fe80:")
DEFAULT_CANDIDATE = Candidate(DEFAULT, (), "default settings: no variable is set", Scope.ANYWHERE)


def gloo_candidates(
    netifs: Sequence[Netif], inherited: tuple[tuple[str, str], ...]
) -> tuple[tuple[Candidate, ...], tuple[LeftOut, ...]]:
    """Return the gloo configurations to test, and the omitted configurations."""
    as_is, unread = inherited_candidate(inherited, "gloo")
    by_name = [netif_candidate(netif) for netif in netifs if not why_unusable(netif)]
    reasons = ((netif_candidate_name(netif.name), why_unusable(netif)) for netif in netifs)
    left_out = [LeftOut(name, reason) for name, reason in reasons if reason]
    return (DEFAULT_CANDIDATE, *as_is, *by_name), (*unread, *left_out)


def nccl_candidates(inherited: tuple[tuple[str, str], ...]) -> tuple[tuple[Candidate, ...], tuple[LeftOut, ...]]:
    """Return the NCCL configurations to test, and the omitted configurations."""
    as_is, unread = inherited_candidate(inherited, "nccl")
    return (DEFAULT_CANDIDATE, *as_is), unread


def inherited_candidate(
    inherited: tuple[tuple[str, str], ...], backend: str
) -> tuple[tuple[Candidate, ...], tuple[LeftOut, ...]]:
    """Return (configuration with the inherited environment, reason why the environment is left out).

    Both results are tuples with at most one item.
    """
    # The environment is left out if the backend reads none of its variables.
    read = [f"{name}={value}" for name, value in inherited if matters(name, backend)]
    if read:
        return (Candidate(AS_IS, (), "what the job gets now: " + " ".join(read), Scope.ANYWHERE),), ()
    if inherited:
        names = ", ".join(name for name, _ in inherited)
        return (), (LeftOut(AS_IS, f"{backend} reads none of the inherited {names}"),)
    return (), ()


def netif_candidate_name(name: str) -> str:
    """Return the name of the configuration that selects the interface `name`."""
    return f"netif {name}"


def netif_candidate(netif: Netif) -> Candidate:
    """Return the configuration that makes gloo and NCCL use one network interface."""
    env = (("GLOO_SOCKET_IFNAME", netif.name), ("NCCL_SOCKET_IFNAME", f"={netif.name}"))
    return Candidate(netif_candidate_name(netif.name), env, f"{netif.name} is up and has an address", Scope.ONE_NODE)


def why_unusable(netif: Netif) -> str:
    """Return why sockets can't or shouldn't use the interface `netif`, or "" if sockets can use it."""
    if netif.kind is NetifKind.LOOPBACK:
        return "loopback reaches no other node and is never recommended"
    if not netif.is_up or netif.has_carrier is False:
        return "it is down" if not netif.is_up else "it has no carrier"
    if "," in netif.name or "\ufffd" in netif.name:
        return "neither NCCL nor gloo accepts a name with a comma or undecodable bytes"
    if netif.addresses == ():
        return "it has no address"
    if isinstance(netif.addresses, tuple) and all(each.startswith(LINK_LOCAL) for each in netif.addresses):
        return "it has only a link-local address"
    return ""
