"""An ordinary Python error on one rank: nothing to do with communication."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, fixed
from preflight.explain.context import Raised
from preflight.explain.event import Authority, Event
from preflight.explain.seen import Seen
from preflight.model.explanation import Confidence

ID = "not_nccl"
OWN = "A rank stopped with a Python error of the program's own, not of the communication: {text}"
NEAR_END = 10  # lines


def judge(seen: Seen) -> Claim | None:
    """Claim the first exception of the program's own; one that success followed, and nothing else, was caught."""
    last_success = max((event.order for event in seen.successes()), default=-1)
    is_failed = bool(seen.failures())
    raised = [(event, error) for event, error in seen.exceptions if is_failed or event.order > last_success]
    if not raised and (refused := seen.best(ID)):
        verdict = f"The program stopped before it began: {refused[0].text.strip()[-160:]}"
        return Claim(Authority.OWN_ERROR, refused, Confidence.HIGH, "the line says so", verdict)
    if not raised:
        return _by_last_line(seen) or _by_exit(seen)
    event, error = raised[0]
    where = f"Rank {event.rank}" if event.rank else "A rank"
    text = f"{error.type}: {error.message}".rstrip(": ")[:160]
    verdict = OWN.replace("A rank", where).replace("{text}", text)
    same = _same(raised, error)
    because = "the traceback ends with an error that is neither a timeout nor a lost connection" + (
        f"; {len(same)} ranks show the same" if len(same) > 1 else ""
    )
    return Claim(Authority.OWN_ERROR, tuple(same), Confidence.MEDIUM, because, verdict)


def _by_last_line(seen: Seen) -> Claim | None:
    """Claim an exception whose traceback was left out, where a process died of it or the log ends with it."""
    if seen.successes():
        return None
    is_dead = bool(seen.failures()) or seen.has("context.died", "context.aborted", "context.task_exit")
    for event, error in seen.bare:
        if is_dead or seen.sources[event.source].lines - event.line < NEAR_END:
            text = f"{error.type}: {error.message}".rstrip(": ")[:160]
            because = "the error is neither a timeout nor a lost connection; its traceback is not in the log"
            return Claim(Authority.UNEXPLAINED_DEATH, (event,), Confidence.LOW, because, OWN.replace("{text}", text))
    return None


def _by_exit(seen: Seen) -> Claim | None:
    """Claim a task that ended with an error code while the others ran into the time limit waiting for it."""
    limits = seen.best("scheduler_time_limit")
    exits = [event for event in seen.of("context.task_exit") if limits and event.order < limits[0].order]
    if not exits or seen.successes():
        return None
    who = f"Rank {exits[-1].rank}" if exits[-1].rank else "A task"
    verdict = (
        f"{who} ended with an error of its own early on; the others waited for it until the scheduler's time limit."
    )
    because = "its exit code comes before the time limit, and no error of the communication does"
    return Claim(Authority.KILLED, (exits[-1], *limits[:1]), Confidence.MEDIUM, because, verdict)


def _same(raised: list[tuple[Event, Raised]], error: Raised) -> list[Event]:
    return [event for event, other in raised if other.type == error.type][:8]


CAUSE = Cause(
    id=ID,
    promise="The program itself has an error; the communication library only noticed that a process was gone.",
    signs=(
        Sign(
            "own.arguments",
            r": error: (?:unrecognized arguments|the following arguments are required|argument -\S{1,60}: )",
            Authority.OWN_ERROR,
            "the program was given arguments that it does not take",
        ),
        Sign(
            "own.missing",
            r"(?:torchrun|deepspeed|accelerate|mpirun|python\d?(?:\.\d{1,2})?): (?:command not found|can't open file)",
            Authority.OWN_ERROR,
            "the program that was to run is not there",
        ),
    ),
    judge=judge,
    remedy=fixed(
        "Read the traceback of that rank from its end; the error is in the program, its arguments or its data.",
        "Run it in one process (without torchrun, or --nproc-per-node 1) for a shorter traceback.",
        "With several ranks: torchrun --log-dir logs --redirects 3 --tee 3 keeps each rank's traceback apart.",
    ),
    needs="the same traceback in a run of one process",
    confirm_with="the same command on one GPU; preflight check clears the machine",
)
