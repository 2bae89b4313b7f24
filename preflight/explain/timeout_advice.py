"""Advice about a timeout in the log, such as how to set a longer timeout in each framework."""

from __future__ import annotations

from preflight.explain.log_evidence import LogEvidence
from preflight.timeout.framework_calls import FRAMEWORK_SETTING

# facts 4.4; {s} seconds, {m} minutes.
LONGEST_S = 3600  # what `preflight timeout` advises at most: a rank that is silent for longer is stuck


def longer_timeout(evidence: LogEvidence) -> tuple[str, ...]:
    """Return sentences that say how to set a longer timeout in the user's framework.

    The sentences also name the command that computes this timeout.
    """
    died_at_s = evidence.timeout_ms() // 1000
    asked = f"`preflight timeout --current {died_at_s}`" if died_at_s else "`preflight timeout`"
    if died_at_s >= LONGEST_S:
        return (f"A timeout above {died_at_s} s only hides the problem; {asked} shows how long each step may take.",)
    names = [name for name, _ in evidence.frameworks.most_common(2) if name in FRAMEWORK_SETTING] or ["torch"]
    lines = [f"    {FRAMEWORK_SETTING[name].format(s=LONGEST_S, m=LONGEST_S // 60)}" for name in names]
    longer = f" than {died_at_s} s" if died_at_s else ""
    how_long = f"{asked} computes the timeout that the job needs. Set at most {LONGEST_S} s:"
    return (f"Raise the timeout only if a step really takes longer{longer}. {how_long}", *lines)


def parted_at(evidence: LogEvidence) -> tuple[str, int] | None:
    """Return the time of day (HH:MM:SS) when the ranks diverged, and the timeout in milliseconds.

    Return None if the time or the timeout is unknown.
    """
    # The time of day is the time of the first timeout minus the length of the wait.
    first = next((event for event in evidence.of("watchdog.caught") if event.moment.clock), None)
    reports = (report for report in evidence.waits.all() if report.timeout_ms)
    wait = next((report for report in reports if first is not None and report.rank == first.rank), None)
    if first is None or wait is None:
        return None
    at_s = int(first.moment.seconds - (wait.ran_for_ms or wait.timeout_ms) / 1000) % 86400
    return f"{at_s // 3600:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d}", wait.timeout_ms


def when_ranks_parted(evidence: LogEvidence) -> tuple[str, ...]:
    """Return a sentence with the time of day when the ranks diverged, or () if the time is unknown."""
    parted = parted_at(evidence)
    if parted is None:
        return ()
    clock, timeout_ms = parted
    apart = duration(timeout_ms)
    text = f"The ranks diverged at about {clock}, {apart} before the first timeout."
    return (f"{text} Check every rank's log at that time.",)


def useless_advice(evidence: LogEvidence) -> tuple[str, ...]:
    """Return sentences that say why the common advice to raise the timeout does not help this run.

    Return () if the log shows no timeout.
    """
    died_at_ms = evidence.timeout_ms()
    if not died_at_ms:
        return ()
    died_at_s = died_at_ms / 1000
    notes = [
        f"A timeout of {died_at_s:g} s or less does not help: the run already had {died_at_s:g} s."
        + (" The common advice ddp_timeout=1800 sets the same value." if died_at_s == 1800 else "")
    ]
    for option_s in sorted(set(evidence.timeout_options_s)):
        if option_s > died_at_s:
            notes.append(
                f"The log mentions a timeout of {option_s:g} s, but the run timed out at {died_at_s:g} s: "
                "init_process_group did not get this option."
            )
        elif option_s != 1800 or died_at_s != 1800:
            notes.append(f"The timeout of {option_s:g} s that the log mentions will not help, for the same reason.")
    return tuple(notes)


def duration(ms: int) -> str:
    """Return a duration in milliseconds as text, such as `30 min` for 1800000 or `8 s` for 8000."""
    return f"{ms / 60000:g} min" if ms % 60000 == 0 else f"{ms / 1000:g} s"
