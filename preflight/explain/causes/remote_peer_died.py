"""The log has only secondary errors: another process died first, and the log of that process is missing."""

from __future__ import annotations

import re

from preflight.explain import run_ends
from preflight.explain.cause import Cause, Claim, Remedy, Sign
from preflight.explain.endings import silent
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

PEER = re.compile(
    r"(?:remote peer|from|peer|to|with) \[?([A-Za-z0-9][\w.:-]{2,80})\]?(?:<(\d{1,5})>|:(\d{1,5})\b)|"
    r"remote=\[([\w.:-]{2,80})\]:(\d{1,5})"
)
LOOPBACK = re.compile(r"127\.\d|::1\b|localhost|::ffff:127\.")
LOOPBACK_PEER = re.compile(r"\[?(?:127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1|localhost)\]?[:<]\d")
# The line above the traceback of vLLM and SGLang, with the engine's name of the process.
OF_ENGINE = re.compile(
    r"\((Worker_\w{1,40}) pid=[^\n]{0,80}WorkerProc hit an exception|"
    r" ((?:[A-Z][A-Z_]{1,8}\d{1,5} ?){1,4})\] Scheduler hit an exception"
)
LEFT_EARLY = "left early"
SILENT = "the only log without an error is that of rank "
FEWEST = 2  # logs of ranks: of two, the other one's error says as much


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that another process died first, with its address or rank if known.

    Return None if the lines in `events` do not show a lost peer.
    """
    # `events` shows no lost peer if the lines have only a SIGTERM or transfers over TCP, or only the end of children
    # whose own errors the log shows.
    no_proof = ("peer.sigterm", "peer.over_tcp", *(("peer.child",) if _of_engine(evidence) else ()))
    if all(event.sign in no_proof for event in events):
        return None
    if events[0].sign == "peer.nixl":
        events = (*events[:2], *evidence.of("peer.over_tcp")[-1:])
    if (left := _left_early(evidence, events)) is not None:
        return left
    because = "ranks print the quoted lines after they lose a peer"
    rows = evidence.processes
    quiet = silent(row for row in rows if row.has_log)
    if len(quiet) == 1 and sum(row.has_log for row in rows) > FEWEST:
        verdict = (
            f"Rank {quiet[0]} died or disconnected first. The log of this rank has no error, and the errors in all "
            f"other logs are secondary."
        )
        return Claim(Authority.ECHO, events, Confidence.MEDIUM, because, verdict, (f"{SILENT}{quiet[0]}",))
    peer = _peer(events)
    who = f"the process at {peer}" if peer else "a process of this job"
    if names := _of_engine(evidence):
        who = f"{names} lost the connection to {who}, which"
    first = (
        "died first, or the network to it failed" if any(map(_may_be_network, events)) else "died or disconnected first"
    )
    verdict = f"This log shows only secondary errors: {who} {first}. Get the log of this process."
    return Claim(Authority.ECHO, events, Confidence.MEDIUM, because, verdict)


def _may_be_network(event: Event) -> bool:
    return "network error" in event.text


def _of_engine(evidence: LogEvidence) -> str:
    """Return the names of the serving-engine processes that report an error, such as `scheduler_TP1`.

    The names are those that the engine uses.
    """
    found = filter(None, (OF_ENGINE.search(event.text) for event in evidence.of(run_ends.DEATH)))
    names = dict.fromkeys(match[1] or f"scheduler_{match[2].replace(' ', '_')}" for match in found)
    return ", ".join(list(names)[:4])


def _peer(events: tuple[Event, ...]) -> str:
    """Return the address of the lost peer.

    Return "" if no line names an address, or if the address belongs to this machine.
    """
    addresses = (match[1] or match[4] for event in events if (match := PEER.search(event.text)))
    return next((address for address in addresses if not LOOPBACK.match(address)), "")


def _left_early(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return this cause if ranks ended early without an error, and other ranks lost connections; else None.

    torchrun's table lists every rank that failed or was ended. A rank that is not listed may be on a machine whose
    output is elsewhere. Therefore, the lost connection must be local (loopback), or the logs must be named by rank.
    """
    rows = evidence.processes
    raised = tuple(row.raised for row in rows if row.rank and row.raised is not None)
    listed = {row.rank for row in rows if row.code}
    is_local = any(LOOPBACK_PEER.search(event.text) for event in (*events, *raised))
    if not raised or not listed or evidence.exceptions or not {event.rank for event in raised}.issuperset(listed):
        return None
    left = silent(row for row in rows if is_local or row.has_log)
    if len(left) > len(raised) or not (left or is_local):
        return None
    frame = evidence.frame(raised[0])
    at = f" in {frame.call or frame.function} at {frame.place}" if frame is not None else ""
    who = "Another rank" if not left else f"Rank {left[0]}" if len(left) == 1 else f"Ranks {', '.join(left[:4])}"
    verdict = (
        f"{who} ended without an error while rank {raised[0].rank} was still{at}. "
        f"{'They' if left[1:] else 'It'} had fewer batches, returned early, or called exit."
    )
    because = (
        "the launcher does not list this rank as failed, the rank printed no error, and another rank lost its "
        "connection to it"
    )
    return Claim(Authority.ECHO, (*raised[:2], *events[:1]), Confidence.MEDIUM, because, verdict, (LEFT_EARLY,))


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for lost connections: read the log of the other process, or find out why a rank ended."""
    if LEFT_EARLY in claim.detail:
        return Remedy(
            "Compare the number of batches of all ranks: print(rank, len(loader)) before the loop. A "
            "DistributedSampler with drop_last=True makes the numbers equal.",
            "Look for a return, break or sys.exit that only some ranks reach. Also look for os._exit and caught "
            "exceptions.",
            "If ranks have different numbers of batches on purpose, put the loop inside `with "
            "torch.distributed.algorithms.join.Join([model]):`.",
        )
    peer = _peer(claim.events) or "the other hosts"
    quiet = [detail.removeprefix(SILENT) for detail in claim.detail if detail.startswith(SILENT)]
    if quiet:
        return Remedy(
            f"Read the end of rank {quiet[0]}'s log and standard error. The rank ended in the last step that they "
            f"show.",
            'On its host: sudo dmesg -T | grep -i -e oom -e "killed process" -e xid -e segfault names a process that '
            "was killed; a killed process leaves no log.",
            "If dmesg names no process, look for os._exit, sys.exit or a return that only this rank reaches.",
        )
    if claim.events[0].sign == "peer.nixl":
        return Remedy(
            "Get the log of the engine at the other end of the transfer (prefill or decode) and give both to "
            "preflight explain.",
            "If UCX used TCP (rma(tcp/...) below), `ucx_info -d | grep -i -e mlx5 -e cuda` must list the adapters "
            "in the container. Pass /dev/infiniband in. Set UCX_TLS=rc,cuda_copy,cuda_ipc,sm,self once to see why "
            "RDMA is refused.",
        )
    host = f"ssh {peer.partition(':')[0]} " if peer[:1].isdigit() else ""
    run = "Run" if host else "On the peer's host, run"
    kernel = (
        f"{run} `{host}sudo dmesg -T | grep -i -e oom -e "
        '"killed process" -e xid`. If the kernel killed the process, the output names the process. If the output is '
        "empty, read the process's log."
    )
    return Remedy(
        *((kernel,) if host else ()),
        f"Get the log of {peer}. Read the last lines before the time of the error above. Then run `preflight explain` "
        "on both logs.",
        *(() if host else (kernel,)),
        "Write one log per rank next time: torchrun --log-dir logs --redirects 3 --tee 3",
    )


CAUSE = Cause(
    promise="A process ended, on this or another machine. This log shows only the ranks that lost their connection to "
    "it.",
    signs=(
        Sign("peer.closed", Authority.ECHO, "a connection to another rank was lost",
             r"[Cc]onnection closed by (?:remote )?peer|[Cc]onnection reset by (?:remote )?peer|ncclRemoteE|"
             r"remote process exited or there was a network error|"
             r"remote process ex\w{2,8} (?:prematurely|or)|Socket recv failed|socketProgress[^\n]{0,40}closed|"
             r"[Cc]all to (?:recv|recvfrom|send|sendmsg) from [^\n]{0,80} failed|Net : Call to recv|[Bb]roken pipe|"
             r"\bEOFError(?:[^:\w]|: [^R]|$)|[Ff]ailed to recv, got 0 bytes|recvValue failed|"
             r"sendBytes failed|recvBytes failed|"
             r"peer closed|caused pair closure|gloo/transport/tcp/pair\.cc"),
        Sign("peer.rendezvous", Authority.ECHO, "torchrun's rendezvous endpoint had ended before this node",
             r"has failed to (?:shutdown the rendezvous|send a keep-alive)[^\n]{0,300}"),
        Sign("peer.actor", Authority.ECHO, "a worker process is gone",
             r"RayActorError|ActorDiedError|The actor (?:died|is dead)|WorkerCrashedError|worker died or was killed|"
             r"ActorUnavailableError|LocalRayletDiedError|NodeDiedError|"
             r"has been marked dead because|Engine core (?:initialization failed|proc[^\n]{0,30}died)"),
        Sign("peer.child", Authority.ECHO, "a worker process is gone", r"Received sigquit from a child process"),
        Sign("peer.nixl", Authority.ECHO, "a transfer of NIXL lost the process at the other end",
             r"NIXL_ERR_REMOTE_DISCONNECT|NIXL transfer failure: handshake"),
        Sign("peer.over_tcp", Authority.SILENCE, "UCX moves data over TCP, not over RDMA",
             r"UCX {1,3}INFO [^\n]{0,60}inter-node cfg#\d{1,4}[^\n]{0,40} rma\(tcp/"),
        Sign("peer.sigterm", Authority.ECHO, "the launcher stopped the process",
             r"DataLoader worker \(pid[^\n]{0,80}\) is killed by signal: Terminated|"
             r"[Ss]ignal 15 \(SIGTERM\)|exitcode {0,4}: {0,2}-15\b|return code = -15\b"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="the peer's log has an error",
    confirm_with="preflight explain PEER_LOG THIS_LOG   # then run `preflight check` on the peer's host",
)  # fmt: skip
