"""NCCL, Gloo or MPI use a network interface that does not lead to the other nodes."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign, fill_in, shared
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

ADDRESS = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(?![\d.])")
PRIVATE = re.compile(r"127\.|172\.17\.|169\.254\.")
USING = re.compile(
    r"Using (?:interface |\[0\])?(lo|docker\d+|virbr\d+|br-\w{1,12}|veth\w{1,12}|cni\d+|flannel\S{1,6}):"
)
TARGET = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(?:<|:|, ?)(\d{2,5})\b")
NEAR_END = 10
UNRESOLVED = "resolve hostname"
MISSING = "The network interface that the settings name does not exist or has no address{host} ({who})."
UNNAMED = (
    "The host name{host} does not resolve to an address of this host ({who}), so gloo uses loopback. Loopback "
    "reaches no other host."
)
UNREACHED = (
    "{who}{host} could not reach another rank's address: the interface is wrong, a firewall blocks the address, or "
    "the other rank had ended."
)
HIDDEN = "NCCL chose an interface that no other machine can reach ({name}), in a job of several machines."


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a network interface is missing, unreachable or unsuitable, or return None."""
    # If NCCL's socket transport refuses the address of a peer, the cause is nccl_plugin_problem instead.
    hosts = {event.host for event in evidence.of("plugin.foreign_address")}
    if hosts:
        events = tuple(event for event in events if event.sign != "interface.no_address" or event.host not in hosts)
        if not events:
            return None
    if events[0].authority is Authority.SETUP:
        because = "the library did not find this interface or address"
        verdict = UNNAMED if _is_unnamed(events) else MISSING
        return Claim(Authority.SETUP, events, Confidence.HIGH, because, fill_in(verdict, events))
    if events[0].authority is Authority.TRANSPORT:
        found = ADDRESS.search(events[0].text)
        if found and PRIVATE.match(found[1]):
            because = f"{found[1]} is an address that only its own machine can reach"
            return Claim(Authority.TRANSPORT, events, Confidence.HIGH, because, fill_in(UNREACHED, events))
        because = (
            "the connection was refused or had no route, but the address looks usable; a firewall or a dead peer may "
            "be the cause"
        )
        return Claim(Authority.TRANSPORT, events, Confidence.MEDIUM, because, fill_in(UNREACHED, events))
    return _by_choice(evidence, events) or _by_retries(evidence)


def _is_unnamed(events: tuple[Event, ...]) -> bool:
    """Return whether all setup errors are gloo's warning about the host's name.

    Every other setup error names an interface.
    """
    return all(UNRESOLVED in event.text for event in events[:20] if event.authority is Authority.SETUP)


def _by_choice(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return this cause if hosts of one job chose `lo` or a container bridge and can't connect; else None.

    With one host, such a choice is no fault.
    """
    chosen = [event for event in events if USING.search(event.text)]
    hosts = {event.host for event in chosen if event.host}
    if len(hosts) < 2 and not (hosts and evidence.has("context.several_nodes")):
        return None
    match = USING.search(chosen[0].text)
    name = match[1] if match else "lo"
    some = f"{len(hosts)} hosts" if len(hosts) > 1 else "a host of several"
    if evidence.timeouts() and len(evidence.starts.unfinished()) == len(evidence.starts.steps):
        because = f"{some} chose {name}, and no communicator was completed before the timeout"
        verdict = HIDDEN.replace("{name}", name)
        return Claim(Authority.REFINED_TIMEOUT, tuple(chosen), Confidence.MEDIUM, because, verdict)
    because = f"{some} chose {name}, and the log ends there"
    return Claim(Authority.SILENCE, tuple(chosen), Confidence.LOW, because, HIDDEN.replace("{name}", name))


def _by_retries(evidence: LogEvidence) -> Claim | None:
    """Return this cause if the log ends in connection retries; else None.

    Some retries are usual while the ranks start.
    """
    retries = evidence.of("interface.retried")
    if not retries or evidence.successes():
        return None
    given_up = any(event.order > retries[-1].order for event in evidence.of("context.system_error"))
    if not given_up and evidence.sources[retries[-1].source].lines - retries[-1].line > NEAR_END:
        return None
    later = (line for source, _, line in evidence.starts.last_line.values() if source == retries[-1].source)
    if max(later, default=0) > retries[-1].line:
        return None  # a connection succeeded
    because = "the log ends in refused connections"
    return Claim(Authority.SILENCE, retries, Confidence.LOW, because, fill_in(UNREACHED, retries))


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for a wrong interface: choose an interface, and test the path to the peer's address."""
    target = next((match for event in claim.events[:20] if (match := TARGET.search(event.text))), None)
    chosen = next((match[1] for event in claim.events[:20] if (match := USING.search(event.text))), "")
    steps = (
        *(
            (
                "`getent hosts $(hostname)` must print, on every host, an address that the other hosts reach. "
                "Correct /etc/hosts, or set the interface by hand (below).",
            )
            if claim.authority is Authority.SETUP and _is_unnamed(claim.events)
            else ()
        ),
        *(
            (
                f"nc -zv {target[1]} {target[2]} from the node with the error. No answer means the wrong network or a "
                f'firewall. "Refused" means that the process at the other end has ended.',
            )
            if target
            else ()
        ),
        *(
            (
                f"export NCCL_SOCKET_IFNAME=^{chosen},lo on every node keeps NCCL from {chosen}; the log line "
                "`Using` must then show another interface.",
            )
            if chosen
            else ()
        ),
        "List the interfaces on every node: ip -br -4 address. Choose one with an address in the network that all "
        "nodes share, never lo, docker0 or virbr0.",
        "Set the interface for both libraries: export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0 (your name; "
        "NCCL takes "
        "prefixes, Gloo exact names). If the names differ between nodes, set it on each node.",
        *(() if target else ("Test the path from the node with the error: nc -zv ADDRESS PORT.",)),
        "Let firewalls allow all ports between nodes.",
    )
    extra = () if claim.authority is Authority.SETUP else (
        "If the address is right, read the log of that host, because its process may have died first.",
    )  # fmt: skip
    return Remedy(*steps, *extra)


CAUSE = Cause(
    promise="A machine has several network interfaces. The program chose an interface that does not reach the other "
    "machines.",
    signs=(
        *shared(Authority.SETUP, "interface.none", "interface.no_address"),
        *shared(Authority.TRANSPORT, "interface.connect", "interface.gloo"),
        Sign("interface.retried", Authority.SILENCE, "a connection to another rank was refused and retried",
             r"[Cc]all to connect returned [^\n]{0,40}(?:refused|route|timed out|unreachable)"),
        Sign("interface.using", Authority.SILENCE, "NCCL uses an interface that reaches no other machine",
             r"NET : Using interface (?:lo|docker|virbr|br-|veth|cni)|"
             r"(?:Bootstrap ?:|NET/Socket ?:) Using (?:\[0\])?(?:lo|docker\d|virbr\d|br-|veth|cni)"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="the job starts with the interface set by hand, or a connection test fails in the same way",
    confirm_with="preflight check   # on every node; names the usable network interfaces",
    outranks=("hang_no_error", "remote_peer_died", "store_wait_timeout"),
)  # fmt: skip
