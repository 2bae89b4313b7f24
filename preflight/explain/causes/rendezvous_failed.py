"""The processes did not join, because of the port, the name or the address of the rendezvous endpoint."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign, fill_in
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

IN_USE = (
    "The port of the rendezvous endpoint is already in use{host}, by another job or by a leftover of an earlier run."
)
UNREACHED = "{who}{host} could not reach the rendezvous endpoint of the job (MASTER_ADDR:MASTER_PORT)."
# As torch prints an endpoint: `(10.0.0.1, 29500)`, `[::ffff:10.0.0.1]:29500`, `10.0.0.1:29500`.
ENDPOINT = re.compile(
    r"[(\[](?:::ffff:)?([A-Za-z0-9][\w.-]{1,80})(?:, |\]:)(\d{2,5})\b|\b(\d{1,3}(?:\.\d{1,3}){3}):(\d{2,5})\b"
)
OF_TORCHRUN = re.compile(r"RendezvousConnectionError|onnection to the C10d store has failed")
WEB = re.compile(r"(?:urllib3|requests|aiohttp|httpx|httpcore|huggingface_hub|botocore|openai)\.")
SAME_TRACEBACK = 80  # lines
PORT = re.compile(r"(?:\bport(?::| number| is)? ?\[?|\[::\]:|\*:)(\d{2,5})\b")


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that the processes never joined, because a port was in use or an endpoint was silent.

    Return None if only unrelated connection errors are found.
    """
    # Unrelated errors are those of web requests, and of an endpoint that torchrun lost after the job had begun.
    events = without_echoes(evidence, events)
    events = tuple(event for event in events if not _is_of_the_web(evidence, event))
    if not events:
        return None
    if events[0].sign == "rendezvous.in_use":
        because = "the log states the cause"
        return Claim(events[0].authority, events, Confidence.HIGH, because, fill_in(IN_USE, events))
    because = "connections to the rendezvous endpoint failed or timed out"
    return Claim(events[0].authority, events, Confidence.MEDIUM, because, fill_in(UNREACHED, events))


def without_echoes(evidence: LogEvidence, events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return `events` without the errors that torchrun prints after a running job lost the rendezvous endpoint."""
    ended = evidence.of("peer.rendezvous")
    return tuple(
        event
        for event in events
        if not OF_TORCHRUN.search(event.text)
        or not any(each.source == event.source and each.order <= event.order for each in ended)
    )


def _is_of_the_web(evidence: LogEvidence, event: Event) -> bool:
    """Return whether the event's traceback continues with an error of a web service, such as a download."""
    raised = (each for each, error in (*evidence.exceptions, *evidence.echoes) if WEB.match(error.type))
    return any(each.source == event.source and 0 <= each.line - event.line < SAME_TRACEBACK for each in raised)


def _endpoint(claim: Claim) -> tuple[str, str]:
    """Return (address, port) of the rendezvous endpoint as texts.

    A text is "" if the log does not show the value.
    """
    for event in claim.events[:20]:
        if match := ENDPOINT.search(event.text):
            return match[1] or match[3], match[2] or match[4]
    ports = (match[1] for event in claim.events[:20] if (match := PORT.search(event.text)))
    return "", next(ports, "")


def remedy(evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for the rendezvous: use a free port or a reachable address.

    The steps name the port and the address in the log.
    """
    address, port = _endpoint(claim)
    if evidence.has("rendezvous.in_use"):
        return Remedy(
            f"ss -ltnp 'sport = :{port or 29500}'{'' if port else ' (your port)'} on that host shows the process that "
            f"uses the port. End the leftover process of the earlier run (kill PID), then start again.",
            "Or use a free port: torchrun --standalone ... on one machine, --master-port 0 or another number "
            "elsewhere. Give each job on a machine its own port.",
            "If the script runs under torchrun and passes a port to init_process_group, the port is opened twice. "
            "Use env:// instead.",
        )
    target = f"{address} {port}" if address and port else "MASTER_ADDR MASTER_PORT"
    return Remedy(
        f"nc -zv {target} from the node that failed, while rank 0 waits. If the connection is refused, rank 0 died or "
        f"listens on another port. If there is no answer, a firewall or the wrong network is the cause.",
        "Give every node the same MASTER_ADDR: an address of rank 0 that the others reach (hostname -I). Do not use "
        "localhost or a name that /etc/hosts maps to 127.0.1.1.",
        "If MASTER_ADDR is a name, `getent hosts MASTER_ADDR` must print the same address on every node.",
        "Start all nodes within the timeout, with the same --nnodes and --rdzv-id, and --node-rank 0 on "
        "the host of MASTER_ADDR.",
        "Read the log of rank 0. If rank 0 died before it opened the port, its error is the cause.",
    )


CAUSE = Cause(
    promise="At the start, all processes connect to one address. Here some processes did not reach this address.",
    signs=(
        Sign("rendezvous.in_use", Authority.SETUP, "the port is in use",
             r"[Aa]ddress already in use|EADDRINUSE|failed to listen on any local network address|"
             r"but another process is utilizing it|specific port\[\d{1,6}\] fail|"
             r"port(?: is|\[?\d{0,6}\]?)[^\n]{0,40} been (?:using|used) by other process|Cannot assign requested port|"
             r"Port \d{1,5} is already (?:in use|allocated)|EI0019|EJ0003"),
        Sign("rendezvous.unreached", Authority.TRANSPORT, "the rendezvous endpoint of the job did not answer",
             r"client socket has (?:timed out|failed to connect)[^\n]{0,40}after|client socket has timed out|"
             r"client socket has failed to connect to any network address|"
             r"RendezvousConnectionError|RendezvousTimeoutError|RendezvousClosedError|RendezvousStateError|"
             r"[Tt]he connection to the C10d store has failed|Name or service not known|Name does not resolve|"
             r"[Cc]an't resolve '|[Cc]ould not resolve host|Temporary failure in name resolution|gai error: \d|"
             r"getaddrinfo failed|[Ff]ailed to (?:connect to|resolve) (?:the )?(?:master|rendezvous|c10d)|"
             r"DistNetworkError: (?:The client|Failed to connect)|connect\(\) timed out|"
             r"RuntimeError: Connection (?:refused|timed out)\r?$|"
             r"ssh: connect to host [^\n]{1,80}(?:refused|timed out|No route)|Host key verification failed|"
             r"ORTE was unable to reliably start|Error initializing torch\.distributed using|EtcdConnectionFailed|"
             r"TCP client failed to connect/validate to host \S{1,80} - timed out|use_libuv was requested but|"
             r"pair of MPI processes are unable to reach each other|"
             r"Failed to connect to coordinator|[Cc]oordinator[^\n]{0,40}(?:unreachable|not reachable)|"
             r"Failed to (?:register|connect) (?:to|with) (?:the )?(?:GCS|head node)|"
             r"The IPv[46] network addresses of [^\n]{1,80}cannot be retrieved|"
             r"Bootstrap Root : (?:mismatch in rank count|rank \d{1,7} of)"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="the port does not answer from one of the nodes",
    confirm_with="preflight check   # on every node; shows the address and port that it uses",
    outranks=("remote_peer_died", "store_wait_timeout"),
)  # fmt: skip
