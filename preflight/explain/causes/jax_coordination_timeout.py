"""JAX's coordination service reports processes that did not start in time, or that stopped sending heartbeats."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

TASK = re.compile(r"/job:\w{1,40}/replica:\d{1,6}/task:(\d{1,7})")
REACHED = re.compile(r"reached the barrier: (\d{1,7}/\d{1,7})")
START = "Not all processes of the JAX job reached its coordinator in time{reached}."
HEARTBEAT = "The JAX coordinator heard no heartbeat of task {task}: it died, was stopped, or did not run for too long."
OTHER = "The JAX coordinator ended this process because another task had failed; the log of that task has the cause."


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim:
    """Claim a barrier that was not reached, then a missed heartbeat, then the secondary errors of either."""
    if events[0].authority is Authority.ECHO:
        because = "the coordinator says that a task failed, not which or why"
        return Claim(Authority.ECHO, events, Confidence.LOW, because, OTHER)
    if events[0].sign == "jax.barrier":
        counts = (REACHED.search(e.text) for e in (*events, *evidence.of("jax.reached")))
        reached = next((f" ({found[1]})" for found in counts if found), "")
        because = "the coordination service says how long it waited"
        return Claim(Authority.TIMEOUT, events, Confidence.HIGH, because, START.replace("{reached}", reached))
    task = next((found[1] for e in events if (found := TASK.search(e.text))), "that it names below")
    because = "the coordination service names the task; why it was silent only that task's own log tells"
    return Claim(Authority.TIMEOUT, events, Confidence.MEDIUM, because, HEARTBEAT.replace("{task}", task))


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the steps: start all processes in time, or find out what the silent task did."""
    if claim.events[0].sign == "jax.barrier":
        return Remedy(
            "Start all processes: num_processes must be the number that is really started, process_id of each its own, "
            "coordinator_address the same and reachable (nc -zv ADDRESS PORT).",
            "Hosts that still install or download come late: jax.distributed.initialize(..., "
            "initialization_timeout=1800).",
            "Look at the logs of the tasks that it names as missing: an error there is the cause.",
        )
    return Remedy(
        "Look at the log of that task before this moment, and at its host: dmesg, preemption, out of memory.",
        "A process that does not run (pinned memory, a long compilation, swapping) misses heartbeats too: "
        "jax.distributed.initialize(..., heartbeat_timeout_seconds=600).",
        "Python must write at once for the last words to be there: python -u.",
    )


CAUSE = Cause(
    promise="The processes of a JAX job keep in touch through one of them; one did not come, or fell silent.",
    signs=(
        Sign("jax.barrier", Authority.TIMEOUT, "not all JAX processes reached a barrier in time",
             r"DEADLINE_EXCEEDED: (?:Barrier timed out|Deadline Exceeded)|Barrier timed out\. |"
             r"GetKeyValue\(\) timed out|[Ff]ailed to connect to (?:the )?coordination service|"
             r"Termination timeout for [^\n]{1,300} exceeded\. Exiting|"
             r"RegisterTask[^\n]{0,80}(?:DEADLINE|[Tt]imed out)|PjRT_Client_Connect[^\n]{0,80}(?:timed|DEADLINE)"),
        Sign("jax.heartbeat", Authority.TIMEOUT, "the coordinator heard nothing of a JAX task any more",
             r"task:\d{1,7} heartbeat timeout|detected missing heartbeats|Unhealthy task: /job|"
             r"[Tt]asks? (?:are )?unhealthy[^\n]{0,20}stopped sending heartbeats|[Hh]eartbeat timeout from task"),
        Sign("jax.other", Authority.ECHO, "another JAX task failed",
             r"JAX distributed service detected fatal errors|Polled an error from coordination service|"
             r"has been set to ERROR in coordination service|coordination service[^\n]{0,60}(?:UNAVAILABLE|"
             r"disconnected)|"
             r"The tasks have crashed|Coordination service agent[^\n]{0,60}(?:ERROR|error state)"),
        Sign("jax.reached", Authority.SILENCE, "how many tasks reached the barrier",
             r"of tasks that reached the barrier: \d{1,7}/\d{1,7}"),
    ),
    judge=judge,
    remedy=remedy,
    needs="the log of the task that is named",
    confirm_with="preflight explain with the logs of all tasks",
    outranks=("watchdog_timeout_straggler", "rendezvous_failed", "store_wait_timeout"),
)  # fmt: skip
