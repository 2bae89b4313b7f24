"""The processes never met: the meeting point's port, name or address."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Remedy, Sign, said
from preflight.explain.event import Authority
from preflight.explain.seen import Seen
from preflight.model.explanation import Confidence

ID = "rendezvous_failed"
IN_USE = "The port of the meeting point is already in use{host}: another job, or what is left of an earlier run."
UNREACHED = "{who}{host} could not reach the meeting point of the job (MASTER_ADDR:MASTER_PORT)."


def judge(seen: Seen) -> Claim | None:
    """Claim a port in use before a meeting point that nobody answered at."""
    in_use = seen.of("rendezvous.in_use")
    events = in_use or seen.best(ID)
    if not events:
        return None
    because = "the log says so in so many words" if in_use else "connections to the meeting point failed or timed out"
    confidence = Confidence.HIGH if in_use else Confidence.MEDIUM
    return Claim(events[0].authority, events, confidence, because, said(IN_USE if in_use else UNREACHED, events))


def remedy(seen: Seen, _claim: Claim) -> Remedy:
    """A free port, or a reachable address."""
    if seen.has("rendezvous.in_use"):
        return Remedy(
            (
                "See who holds it: ss -ltnp 'sport = :29500' (your port); end what is left of the earlier run.",
                "Or take a free one: torchrun --standalone ... on one machine, --master-port 0 or another "
                "number elsewhere; with "
                "several jobs on a machine give each its own.",
                "A script that calls init_process_group with its own port inside torchrun opens it twice: use env://.",
            )
        )
    return Remedy(
        (
            "Every node needs the same MASTER_ADDR: an address of rank 0 that the others reach (hostname "
            "-I), not localhost, not a "
            "name that /etc/hosts maps to 127.0.1.1.",
            "Test it from the node that failed: getent hosts MASTER_ADDR; nc -zv MASTER_ADDR MASTER_PORT "
            "(while rank 0 waits).",
            "Start all nodes within the timeout, with the same --nnodes and --rdzv-id, and --node-rank 0 on "
            "the host of MASTER_ADDR.",
            "Look at the log of rank 0: if it died before it opened the port, its error is the cause.",
        )
    )


CAUSE = Cause(
    id=ID,
    promise="Before any work, the processes meet at one address; they did not find each other there.",
    signs=(
        Sign(
            "rendezvous.in_use",
            r"[Aa]ddress already in use|EADDRINUSE|failed to listen on any local network address|"
            r"but another process is utilizing it",
            Authority.SETUP,
            "the port is taken",
        ),
        Sign(
            "rendezvous.unreached",
            r"client socket has (?:timed out|failed to connect)[^\n]{0,40}after|client socket has timed out|"
            r"RendezvousConnectionError|RendezvousTimeoutError|RendezvousClosedError|RendezvousStateError|"
            r"[Tt]he connection to the C10d store has failed|Name or service not known|Name does not resolve|"
            r"[Cc]an't resolve '|[Cc]ould not resolve host|Temporary failure in name resolution|"
            r"gai error: \d|getaddrinfo failed|[Ff]ailed to (?:connect to|resolve) (?:the )?(?:master|"
            r"rendezvous|c10d)|"
            r"DistNetworkError: (?:The client|Failed to connect)|connect\(\) timed out|"
            r"RuntimeError: Connection (?:refused|timed out)\r?$|"
            r"ssh: connect to host [^\n]{1,80}(?:refused|timed out|No route)|Host key verification failed|"
            r"ORTE was unable to reliably start|Error initializing torch\.distributed using|EtcdConnectionFailed|"
            r"TCP client failed to connect/validate to host \S{1,80} - timed out|use_libuv was requested but|"
            r"Bootstrap Root : (?:mismatch in rank count|rank \d{1,7} of)",
            Authority.TRANSPORT,
            "the meeting point of the job did not answer",
        ),
    ),
    judge=judge,
    remedy=remedy,
    needs="the port answers from every node",
    confirm_with="preflight check on every node (it meets at an address and port that it shows)",
    outranks=frozenset({"remote_peer_died", "store_wait_timeout"}),
)
