"""The texts about a timeout: the verdict, and the notes for the user."""

from __future__ import annotations

from preflight.model.gap import Gap
from preflight.model.job import Job
from preflight.model.job_phases import Phase
from preflight.model.timeout import Part, SafeTimeout, Source, Term, Timings
from preflight.model.units import decimal_text, seconds_text

# What forums advise by size of the model, in seconds; above, "longer, by hand".
USUAL_ADVICE_S = ((1e9, 600, 1200, "under 1 B"), (1e10, 1800, 3600, "of 1 to 10 B"))
STEPS = {  # pauses whose name alone is no subject of a sentence
    "checkpoint": "the checkpoint",
    "evaluation": "the evaluation",
    "first compilation": "the first compilation",
    Phase.FINISHED.value: "the work at the end of training",
}
SLOW_COLLECTIVE_SHARE = 0.1  # of the floor: the transfers of a healthy collective take seconds at most
NOT_TO_RAISE = (
    "a collective that some ranks never enter (a checkpoint, an evaluation, a log call behind `if rank == 0`). Such a "
    "collective never ends, so a longer timeout only hides the hang for longer",
    "a rank that died (out of memory, a data loader, the kernel's OOM killer). The other ranks can only time out; "
    "`preflight explain LOG` names the dead rank",
    "a run that already died at this timeout. The same or a smaller timeout does not help",
)


def verdict_on(found: SafeTimeout, current_s: float | None) -> str:
    """Return one sentence that judges the job's timeout.

    `current_s` is the job's timeout in seconds, or None if unknown. `found` has the timeout that the job needs.
    """
    if not found.is_enough:
        step, takes = _longest_step(found)
        too_long = f"{step} {takes}, but preflight advises at most {found.cap_s:,} s"
        if found.longest_source is Source.ASSUMED:
            return f"perhaps no timeout is enough: {too_long}. --checkpoint-dir DIR measures your storage"
        return f"{too_long}. Shorten {step}, or let no other rank wait for it"
    if current_s is not None and found.pg_timeout_s <= current_s:
        is_guess = found.longest_source is Source.ASSUMED
        guess = " (the storage is assumed: --checkpoint-dir measures it)" if is_guess else ""
        return (
            f"a longer timeout does not help: the job has {current_s:,.0f} s already, and no known step needs more "
            f"than {found.pg_timeout_s:,} s{guess}. A run that died at {current_s:,.0f} s waited for something else"
        )
    asked = f"the time budget is {seconds_text(found.sum_s)}"
    if found.sum_s > found.cap_s:
        pause_s = found.longest_pause_s
        times = found.pg_timeout_s / pause_s if pause_s else 0.0
        covers = f". This timeout is {times:.1f} times the longest pause: {_longest(found)}" if pause_s else ""
        return f"{asked}, but preflight advises at most {found.cap_s:,} s{covers}"
    if found.sum_s <= found.floor_s:
        return f"{asked}, so the minimum of {found.floor_s:,} s is enough"
    better = "" if current_s is None else f"; the job's timeout of {current_s:,.0f} s is too short"
    return f"{asked} (mostly {found.dominated_by}){better}"


def notes_on(found: SafeTimeout, job: Job, timings: Timings, current_s: float | None) -> tuple[str, ...]:
    """Return notes on a computed timeout: what is missing, and how the timeout differs from common advice."""
    notes = []
    if job.params is None and not job.silences:
        notes.append("the size of the model is unknown (--params), so its checkpoints are not included")
    if found.sum_s > found.cap_s:
        notes.append(
            f"above preflight's limit of {found.cap_s:,} s, each hang holds all GPUs for more than an hour before it "
            "is noticed. Do longer work before the job, in shards, or in a gloo group with its own timeout"
        )
    notes += _usual_advice(found, job)
    notes += _slow_collective(found, timings)
    if timings.nccl_report_s > found.cap_s:
        notes.append(
            f"NCCL retries for {timings.nccl_report_s:,.0f} s before it reports an error (NCCL_IB_TIMEOUT and "
            "similar settings). This is longer than any timeout, so lower the setting"
        )
    if current_s is not None and found.pg_timeout_s <= current_s and found.is_enough:
        notes.append(
            "to find out what the run waited for, run `preflight explain` on every rank's log, time one checkpoint "
            "alone, and check that all ranks enter the checkpoint"
        )
    return tuple(notes)


def unmeasured(timings: Timings) -> tuple[str, ...]:
    """Return the reasons why storage or collective times were assumed and not measured, without duplicates."""
    read = (timings.write_one_bytes_per_s, timings.read_one_bytes_per_s, timings.collective_s, timings.connect_s)
    return tuple(dict.fromkeys(each.reason for each in read if isinstance(each, Gap)))


def _usual_advice(found: SafeTimeout, job: Job) -> list[str]:
    """Return why the timeout differs from the usual advice, or [] if it does not differ.

    The usual advice is the range that forums recommend for the size of the model.
    """
    if job.params is None:
        return []
    total, pg_s = job.params.total, found.pg_timeout_s
    row = next((row for row in USUAL_ADVICE_S if total < row[0]), None)
    if row is None:
        return [
            'for models above 10 B the usual advice is "longer, by hand"; here it is the time budget, up to '
            f"{found.cap_s:,} s"
        ]
    _, low_s, high_s, which = row
    usual = f"the usual advice for models {which} is {low_s:,} to {high_s:,} s"
    if pg_s < low_s:
        return [f"{usual}; less is enough here, because {_why(found)}. A longer timeout only shows a hang later"]
    if pg_s > high_s:
        return [f"{usual}; more is needed here, because {_why(found)}"]
    return []


def _why(found: SafeTimeout) -> str:
    term = _longest_term(found)
    return f"{term.name} takes {seconds_text(term.value)} ({term.source.value})" if term else "no step takes long"


def _longest(found: SafeTimeout) -> str:
    term = _longest_term(found)
    if term is None:
        return "none"
    return f"{term.name}, {seconds_text(term.value)} ({term.source.value})"


def _longest_step(found: SafeTimeout) -> tuple[str, str]:
    """Return the name of the longest step, and its duration as a clause.

    An example is (`the evaluation`, `takes 7,200 s (given)`).
    """
    term = _longest_term(found)
    if term is None:
        return "a step", "takes long"
    return STEPS.get(term.name, term.name), f"takes {seconds_text(term.value)} ({term.source.value})"


def _longest_term(found: SafeTimeout) -> Term | None:
    paused = [term for term in found.terms if term.factor > 1 and term.value == found.longest_pause_s]
    return paused[0] if paused and found.longest_pause_s else None


def _slow_collective(found: SafeTimeout, timings: Timings) -> list[str]:
    term = next(term for term in found.terms if term.part is Part.TRAINING and term.name == "largest collective")
    if term.source is not Source.MEASURED or term.value <= SLOW_COLLECTIVE_SHARE * found.floor_s:
        return []
    size = "" if isinstance(timings.collective_s, Gap) else f" ({decimal_text(timings.collective_bytes)} were measured)"
    return [
        f"one collective takes {seconds_text(term.value)}{size}, more than a tenth of the minimum: repair the network "
        f"first"
    ]
