"""Only echoes: somebody else died first, and that log is not here."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign
from preflight.explain.event import Authority, Event
from preflight.explain.seen import Seen
from preflight.model.explanation import Confidence

ID = "remote_peer_died"
PEER = re.compile(
    r"(?:remote peer|from|peer|to|with) \[?([A-Za-z0-9][\w.:-]{2,80})\]?(?:<(\d{1,5})>|:(\d{1,5})\b)|"
    r"remote=\[([\w.:-]{2,80})\]:(\d{1,5})"
)


def judge(seen: Seen) -> Claim | None:
    """Claim lost connections, and name the address at the other end."""
    events = seen.best(ID)
    if not events:
        return None
    peer = _peer(events)
    who = f"the process at {peer}" if peer else "a process of this job"
    verdict = (
        f"The log holds only echoes: {who} closed its connections or died first. Its own log has the cause; fetch that."
    )
    because = "every line here is what survivors print after they lose a peer"
    return Claim(Authority.ECHO, events, Confidence.MEDIUM, because, verdict)


def _peer(events: tuple[Event, ...]) -> str:
    for event in events:
        if match := PEER.search(event.text):
            return match[1] or match[4]
    return ""


def remedy(_seen: Seen, claim: Claim) -> Remedy:
    """Get the other log."""
    peer = _peer(claim.events) or "the other hosts"
    return Remedy(
        (
            f"Get the log of {peer} and give both to preflight explain; read its last lines before the time below.",
            'On that host: sudo dmesg -T | grep -i -e oom -e "killed process" -e xid   (killed processes '
            "leave no log).",
            "Write one log per rank next time: torchrun --log-dir logs --redirects 3 --tee 3",
        )
    )


CAUSE = Cause(
    id=ID,
    promise="A partner on another machine (or in another process) vanished, and this log only shows who missed it.",
    signs=(
        Sign(
            "peer.closed",
            r"[Cc]onnection closed by (?:remote )?peer|[Cc]onnection reset by (?:remote )?peer|ncclRemoteE|"
            r"remote process ex\w{2,8} (?:prematurely|or)|Socket recv failed|socketProgress[^\n]{0,40}closed|"
            r"[Cc]all to (?:recv|recvfrom|send|sendmsg) from [^\n]{0,80} failed|Net : Call to recv|"
            r"[Bb]roken pipe|EOFError|[Ff]ailed to recv, got 0 bytes|recvValue failed|sendBytes failed|"
            r"recvBytes failed|"
            r"peer closed|gloo/transport/tcp/pair\.cc",
            Authority.ECHO,
            "a connection to another rank was lost",
        ),
        Sign(
            "peer.rendezvous",
            r"has failed to (?:shutdown the rendezvous|send a keep-alive)[^\n]{0,300}",
            Authority.ECHO,
            "torchrun's meeting point was gone when this node ended",
        ),
        Sign(
            "peer.actor",
            r"RayActorError|ActorDiedError|The actor died|WorkerCrashedError|worker died or was killed|"
            r"has been marked dead because|Engine core (?:initialization failed|proc[^\n]{0,30}died)|"
            r"Received sigquit from a child process",
            Authority.ECHO,
            "a worker process is gone",
        ),
        Sign(
            "peer.sigterm",
            r"[Ss]ignal 15 \(SIGTERM\)|exitcode {0,4}: {0,2}-15\b|return code = -15\b",
            Authority.ECHO,
            "the process was told to stop by its launcher",
        ),
    ),
    judge=judge,
    remedy=remedy,
    needs="the log of the peer",
    confirm_with="preflight explain with that log beside this one; preflight check on that host",
)
