"""Decide whether a run survived an event in its log.

A run survived an event if a success, a restart, work steps or a ready server came later.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping

from preflight.explain.event import Authority, Event

# torchrun and the launcher of DeepSpeed, once a process has failed.
GIVEN_UP = re.compile(r"ChildFailedError|exits with return code = -?[1-9]")
# Scripts print it whatever became of the command before it.
ANY_END = re.compile(r"[Ff]inished|[Cc]ompleted?\b|All done", re.IGNORECASE)
# nccl-tests: that another collective passes mends nothing.
ONE_TEST = re.compile(r"Test (?:NCCL|CUDA) failure|Out of bounds values : [1-9]")
FEW = 3  # steps: where nothing died, the run goes on
MANY = 12  # steps: more than a dying process had still in its buffers
# Slurm kills what is left after KillWait, 30 s by default; a program that ignores SIGTERM works on until then.
ENDED_BY_SLURM = re.compile(r"\*\*\* (?:STEP|JOB) \S{1,40} ON \S{1,64} CANCELLED AT ")


class Survival:
    """The successes, restarts and work steps in all logs, to decide whether the run survived an event."""

    def __init__(
        self, steps: Mapping[int, int], successes: Iterable[Event], deaths: Iterable[Event],
        restarts: Iterable[Event], readies: Iterable[Event] = (), starts: Iterable[Event] = (),
        stops: Iterable[Event] = (), lefts: Iterable[Event] = (), prepared: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        self._steps, self._prepared = steps, prepared or {}
        self._successes, self._deaths = tuple(successes), tuple(deaths)
        self._restarts, self._readies = tuple(restarts), tuple(readies)
        self._starts, self._stops, self._lefts = tuple(starts), tuple(stops), tuple(lefts)
        self._last_success = _last_by_source(self._successes)
        self._last_death = _last_by_source(self._deaths)

    def survived(self, event: Event) -> bool:
        """Return whether the run continued or succeeded after the event."""
        # The run continued if a success came later, or if the same log shows a working restart, a ready server or
        # enough work steps. Work does not count after the launcher gave up the job, because this work belongs to
        # another program.
        if ONE_TEST.search(event.text):
            return False
        if self._is_before_success(event):
            return True
        end = next((death for death in self._after(event, self._deaths) if GIVEN_UP.search(death.text)), None)
        total = self._steps.get(event.source, 0) if end is None else end.steps
        restarts = [each for each in self._after(event, self._restarts) if end is None or each.order < end.order]
        if any(total - restart.steps >= FEW for restart in restarts) or self._became_ready(event):
            return True
        if event.authority is Authority.KILLED and ENDED_BY_SLURM.search(event.text):
            return False
        death = self._last_death.get(event.source)
        has_died = death is not None and death.order >= event.order
        after = total - event.steps
        if event.authority <= Authority.KILLED:
            return after >= MANY and not has_died
        # Another rank may go on with its data until the launcher ends it.
        return after >= MANY if has_died else after + self._prepared.get(event.source, 0) >= FEW

    def _after(self, event: Event, others: Iterable[Event]) -> list[Event]:
        """Return the events in `others` that are in the log of `event` and not before `event`, in order."""
        found = [each for each in others if each.source == event.source and each.order >= event.order]
        return sorted(found, key=lambda each: each.order)

    def _became_ready(self, event: Event) -> bool:
        """Return whether a server became ready for the first time after an event, and no process died in between."""
        own = [ready for ready in self._readies if ready.source == event.source]
        first = min(own, key=lambda ready: ready.order, default=None)
        if first is None or first.order < event.order or event.authority <= Authority.KILLED:
            return False
        return not any(death.order < first.order for death in self._after(event, self._deaths))

    def is_after_success(self, event: Event) -> bool:
        """Return whether the event came after the run succeeded or was asked to stop.

        Return False if new work began before the event.
        """
        return any(self._follows(event, done) for done in self._successes) or self.is_after_stop(event)

    def is_after_stop(self, event: Event) -> bool:
        """Return whether the event came after a server was asked to stop and before the server ended.

        Only events in the server's own log count.
        """
        return any(
            stop.source == event.source and self._follows(event, stop) and not self._had_left(stop, event)
            for stop in self._stops
        )

    def _had_left(self, stop: Event, event: Event) -> bool:
        lefts = self._after(stop, self._lefts)
        return bool(lefts) and lefts[-1].order < event.order

    def _follows(self, event: Event, done: Event) -> bool:
        if event.source == done.source:
            if any(start.order < event.order for start in self._after(done, self._starts)):
                return False
            return event.order > done.order and event.steps - done.steps < FEW
        if event.moment.clock and event.moment.clock == done.moment.clock:
            return event.moment.seconds >= done.moment.seconds
        return event.authority >= Authority.ECHO  # of another log without a common clock

    def has_new_work(self, event: Event) -> bool:
        """Return whether the log of the event shows new work between the log's last success and the event."""
        # A program that starts is new work, and so are more steps than the other ranks may still have to print.
        own = [done for done in self._successes if done.source == event.source and done.order < event.order]
        if not own:
            return False
        last = max(own, key=lambda done: done.order)
        begun = any(start.order < event.order for start in self._after(last, self._starts))
        return begun or event.steps - last.steps >= MANY

    def _is_before_success(self, event: Event) -> bool:
        done = self._last_success.get(event.source)
        if done is not None and done.order > event.order:
            return True
        others = (success for success in self._last_success.values() if success.source != event.source)
        if not event.moment.clock:
            return False
        known = (done.moment for done in others if done.moment.clock == event.moment.clock)
        return any(moment.seconds > event.moment.seconds for moment in known)


def of_the_job(
    successes: Iterable[Event], deaths: Iterable[Event], starts: Iterable[Event], worked: Container[int]
) -> list[Event]:
    """Return `successes` without the successes that a script printed after the launcher had given up the job."""
    # `deaths` are log lines about processes that ended. `starts` are log lines that a program prints when it starts.
    # `worked` has the numbers of the logs that show steps of work.
    given_up = [death for death in deaths if GIVEN_UP.search(death.text)]
    begun = tuple(starts)

    def is_script_s(done: Event) -> bool:
        if ANY_END.search(done.text) is None:
            return False
        # A script's own log without any step of work, next to the log of a launcher that gave up.
        if done.source not in worked and given_up and all(each.source != done.source for each in given_up):
            last = given_up[-1]
            is_later = done.moment.clock and done.moment.clock == last.moment.clock and is_after(done, last)
            return not is_later and not any(is_after(each, last) for each in begun)
        before = [each for each in given_up if each.source == done.source and each.order < done.order]
        if not before:
            return False
        end = max(before, key=lambda each: each.order)
        goes_on = any(each.source == done.source and end.order < each.order < done.order for each in begun)
        return not goes_on and done.steps - end.steps < FEW

    return [done for done in successes if not is_script_s(done)]


def is_after(one: Event, other: Event) -> bool:
    """Return whether event `one` came after event `other`.

    The times decide if both events have times in one format. Otherwise, the positions in the logs decide.
    """
    if one.moment.clock and one.moment.clock == other.moment.clock and one.moment.seconds != other.moment.seconds:
        return one.moment.seconds > other.moment.seconds
    return one.order > other.order


def _last_by_source(events: Iterable[Event]) -> dict[int, Event]:
    last: dict[int, Event] = {}
    for event in events:
        if event.source not in last or event.order > last[event.source].order:
            last[event.source] = event
    return last
