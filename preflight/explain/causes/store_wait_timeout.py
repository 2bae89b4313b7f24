"""A rank waited at the key-value store for a key that another rank never wrote."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, fill_in, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.explain.timeout_advice import longer_timeout
from preflight.model.explanation import Confidence
from preflight.model.job_phases import Phase

SOME_WAITS = 3  # a line every ten seconds: less is an ordinary start
NEAR_END = 10
VERDICT = (
    "{who}{host} timed out at the start-up store while it waited for a rank. The other rank was late, never started, "
    "or died before it wrote its key."
)


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a rank waited for a key that no rank wrote to the key-value store.

    Return None if the log continues after the wait.
    """
    # The evidence is an error of the store, or a wait at the end of the log.
    if events[0].authority is Authority.SILENCE:
        return _still_waiting(evidence, events)
    because = "the store names the key that no rank wrote, or counts the ranks that joined"
    return Claim(events[0].authority, events, Confidence.MEDIUM, because, fill_in(VERDICT, events))


def _still_waiting(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return this cause if ranks wait at the store at the end of the log; else None.

    Return None also if a rank has passed this wait. Every start has short waits, so a few waits prove nothing.
    """
    source = evidence.sources[events[-1].source]
    if evidence.has("context.past_store") or evidence.failures() or evidence.exceptions or evidence.successes():
        return None
    went_on = evidence.phase(Phase.TRAINING, Phase.EVALUATING, Phase.SAVING)
    if went_on is not None and went_on.line > events[0].line:
        return None
    if len(events) < SOME_WAITS or source.lines - events[-1].line > NEAR_END:
        return None
    because = "the log ends in ranks that wait for others to start"
    return Claim(Authority.SILENCE, events, Confidence.LOW, because, fill_in(VERDICT, events))


CAUSE = Cause(
    promise="At the start, processes exchange keys in a store. Here a process waited for a key that no process wrote.",
    signs=(
        Sign("store.wait", Authority.TIMEOUT, "a rank timed out waiting at the store",
             r"wait timeout after \d{1,12}ms|store->get\(|Timed out after \d{1,9} seconds waiting for clients|"
             r"Timed out initializing process group|store based barrier on rank|DistStoreError|"
             r"waitForInput: (?:poll|socket)|Socket Timeout|retrie?(?:iev|ev|ei)\w{1,4} ncclUniqueId"),
        Sign("store.waiting", Authority.SILENCE, "a rank waits at the store for the others to start",
             r"Waiting in store based barrier"),
    ),
    judge=judge,
    remedy=fixed(
        "Count the ranks that joined; the log says n of m. If n is less than m, a node did not start or died, so read "
        "its log. If n is greater, the script was started twice.",
        "Read the log of rank 0, which writes key '0'. If rank 0 was still loading a model or preparing data, it is "
        "only late.",
        "If NCCL's own groups work and only a Gloo group waits: export GLOO_SOCKET_IFNAME=eth0 (your "
        "interface), on every node.",
        then=longer_timeout,
    ),
    confirmed_if="the log of the rank that did not write has an error or ends early",
    confirm_with="preflight check   # on every node",
    outranks=("watchdog_timeout_straggler", "remote_peer_died"),
)  # fmt: skip
