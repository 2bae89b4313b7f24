"""The job completed, but processes printed errors because they did not stop at the same time."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.explain.run_ends import ABORT, DONE
from preflight.explain.survival import is_after
from preflight.model.explanation import Confidence

NATIVE = ("segv.signal", "segv.text", "heartbeat.stuck")
VERDICT = "The job had finished. The errors came later, because the processes of the job stopped at different times."


def judge(evidence: LogEvidence, _events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that processes aborted after the job had succeeded.

    Return None if no process aborted, or if there was another failure.
    """
    # An error with its own message counts as a failure even after the success, because one log may hold two runs.
    successes = evidence.successes()
    crashes = evidence.of(ABORT, *NATIVE)
    if not crashes:
        return None
    if not successes:
        return _after_the_work(evidence, crashes)
    done = successes[0].order
    failures = evidence.failures()
    if any(map(evidence.survival.has_new_work, (*failures, *crashes))):
        return None  # there was new work between the success and this failure
    if any(event.order < done for event in (*failures, *crashes) if event.authority < Authority.SILENCE):
        return None
    own = (event for event in failures if event.authority < Authority.TIMEOUT and event.sign not in NATIVE)
    if any(event.authority is not Authority.KILLED for event in own):
        return None
    because = f"line {successes[0].line} says that the job had succeeded"
    return Claim(Authority.HARDWARE, failures[:6] or crashes[:6], Confidence.MEDIUM, because, VERDICT)


def _after_the_work(evidence: LogEvidence, crashes: tuple[Event, ...]) -> Claim | None:
    """Return this cause if processes aborted after the last checkpoint of a run that reports its end; else None.

    Return None also if a rank waited in a collective.
    """
    done = evidence.of(DONE)
    failures = evidence.failures()
    if not done or evidence.exceptions or any(not is_after(event, done[-1]) for event in (*failures, *crashes)):
        return None
    if any(event.sign not in NATIVE and event.authority < Authority.ECHO for event in failures):
        return None
    because = f"line {done[-1].line} says that the work was done, and no rank waited in a collective after it"
    return Claim(Authority.HARDWARE, failures[:6] or crashes[:6], Confidence.MEDIUM, because, VERDICT)


CAUSE = Cause(
    promise="The job finished its work. Only its shutdown had errors.",
    judge=judge,
    remedy=fixed(
        "Check that the last checkpoint exists, and use it, because the results are complete.",
        "End all ranks together: call torch.distributed.barrier(), then torch.distributed.destroy_process_group(), "
        "then exit.",
        "If a script needs the exit code, call os._exit(0) at the end, or let the script check a success marker.",
    ),
    infers=True,
    confirmed_if="the last checkpoint and the result files are complete",
    confirm_with="check the results; no measurement is needed",
    outranks=("checkpoint_save_timeout", "heartbeat_monitor", "host_oom_killed", "ib_broken",
              "nccl_plugin_problem", "remote_peer_died",
              "rendezvous_failed", "scheduler_cancelled", "scheduler_time_limit", "segfault_worker",
              "store_wait_timeout", "watchdog_timeout_straggler", "wrong_socket_interface"),
)  # fmt: skip
