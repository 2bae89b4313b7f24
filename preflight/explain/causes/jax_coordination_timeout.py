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
HEARTBEAT = "The JAX coordinator got no heartbeat of {task}. The task died, was stopped, or was blocked for too long."
UNNAMED = "a task that the next lines of the log name"
OTHER = (
    "The JAX coordinator ended this process because another task had failed. The log of the failed task has the cause."
)


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim:
    """Return the conclusion that processes of a JAX job did not start in time or stopped sending heartbeats."""
    # If `events` has only secondary errors, the conclusion is that another task failed, with low confidence.
    if events[0].authority is Authority.ECHO:
        because = "the coordinator says that a task failed, but not which task or why"
        return Claim(Authority.ECHO, events, Confidence.LOW, because, OTHER)
    if events[0].sign == "jax.barrier":
        counts = (REACHED.search(e.text) for e in (*events, *evidence.of("jax.reached")))
        reached = next((f" ({found[1]})" for found in counts if found), "")
        because = "the coordination service says how long it waited"
        return Claim(Authority.TIMEOUT, events, Confidence.HIGH, because, START.replace("{reached}", reached))
    task = next((f"task {found[1]}" for e in events if (found := TASK.search(e.text))), UNNAMED)
    because = "the coordination service names the task, but only the task's own log shows why it sent nothing"
    return Claim(Authority.TIMEOUT, events, Confidence.MEDIUM, because, HEARTBEAT.replace("{task}", task))


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for a JAX job with late or silent tasks."""
    if claim.events[0].sign == "jax.barrier":
        return Remedy(
            "Start all processes. num_processes must be the number of started processes. Each process needs its own "
            "process_id and the same reachable coordinator_address (nc -zv ADDRESS PORT).",
            "If hosts are late because they install or download software, set jax.distributed.initialize(..., "
            "initialization_timeout=1800).",
            "Read the logs of the tasks that the coordinator names as missing. An error there is the cause.",
        )
    return Remedy(
        "Read the log of the missing task before the time of the error. Then check its host: dmesg, preemption, out "
        "of memory.",
        "A blocked process (pinned memory, a long compilation, swapping) misses heartbeats too. If that is the "
        "reason, set "
        "jax.distributed.initialize(..., heartbeat_timeout_seconds=600).",
        "Use `python -u`, so that Python writes its last lines before it dies.",
    )


CAUSE = Cause(
    promise="The processes of a JAX job report to a coordinator. One process did not start, or stopped reporting.",
    signs=(
        Sign("jax.barrier", Authority.TIMEOUT, "not all JAX processes reached a barrier in time",
             r"DEADLINE_EXCEEDED: (?:Barrier timed out|Deadline Exceeded)|Barrier timed out\. |"
             r"GetKeyValue\(\) timed out|[Ff]ailed to connect to (?:the )?coordination service|"
             r"Termination timeout for [^\n]{1,300} exceeded\. Exiting|"
             r"RegisterTask[^\n]{0,80}(?:DEADLINE|[Tt]imed out)|PjRT_Client_Connect[^\n]{0,80}(?:timed|DEADLINE)"),
        Sign("jax.heartbeat", Authority.TIMEOUT, "the coordinator no longer heard from a JAX task",
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
    confirmed_if="the log of the task that is named has an error or ends early",
    confirm_with="preflight explain LOGS   # of all tasks",
    outranks=("watchdog_timeout_straggler", "rendezvous_failed", "store_wait_timeout"),
)  # fmt: skip
