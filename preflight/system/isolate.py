"""Run code that may hang or die in child processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from preflight.errors import Interrupted
from preflight.model.gap import NO_ANSWER
from preflight.system.child import Parent
from preflight.system.crew import Crew, Lost
from preflight.system.machine import Json

CALLS_S = 4.3  # leaves the probe's process time to answer within its own 5 s
FIRST_STALL_S = 2.0
LATER_STALL_S = 0.5  # a library that hung once gets less time
HUNG_CALLS_PER_NAME = 2  # after so many, that function or device is not asked again
NEVER = "not read: no time was left for this call"
CALLER = "caller"  # the one child of a crew that makes calls


@dataclass(frozen=True, slots=True)
class Answer:
    """The return value of a function, or the reason (`failure`) why the function returned no value."""

    value: Json
    failure: str  # empty when it returned
    duration_s: float
    is_late: bool = False  # its limit came first


def run_isolated(
    functions: Mapping[str, Callable[[], Json]], limits_s: Mapping[str, float],
    meanwhile: Callable[[], object] = tuple, when_stopped: Callable[[Interrupted], object] | None = None,
) -> dict[str, Answer]:  # fmt: skip
    """Run the functions in parallel child processes, and return {name: Answer}.

    Call this function from a process with a single thread, because the function forks.
    """
    # A function that raises, dies or takes longer than its limit (`limits_s`, in seconds) has a `failure`. `meanwhile`
    # is called after the functions start. After a signal, `when_stopped` gets the signal, and the answers so far are
    # returned. Without `when_stopped`, the signal is raised.
    start = time.monotonic()
    answers: dict[str, Answer] = {}
    with Crew[str]() as crew:
        try:
            for name, function in functions.items():
                crew.fork(name, partial(_tell_outcome, function), limits_s[name])
            meanwhile()
            while crew.children:
                for name, outcome, lost in crew.listen():
                    answers[name] = _answer(outcome, lost, time.monotonic() - start)
                    crew.end(name)
        except Interrupted as error:
            if when_stopped is None:
                raise
            when_stopped(error)
            answers = dict.fromkeys(functions, Answer(None, str(error), time.monotonic() - start)) | answers
    return {name: answers[name] for name in functions}


def _tell_outcome(function: Callable[[], Json], parent: Parent) -> None:
    try:
        outcome = {"value": function()}
    except Exception as error:  # noqa: BLE001  a probe's defect becomes that fact's gap, never the end of the run
        outcome = {"failure": f"{type(error).__name__}: {error}"}
    parent.send(outcome)


def _answer(outcome: Json, lost: Lost | None, elapsed_s: float) -> Answer:
    if lost is Lost.LATE:
        return Answer(None, f"{NO_ANSWER} {elapsed_s:.1f} s; the call is stuck", elapsed_s, True)
    if lost:
        return Answer(None, "the process that read this value died", elapsed_s)
    return Answer(outcome.get("value"), outcome.get("failure", ""), elapsed_s)


@dataclass(slots=True)
class Asker:
    """A proxy that makes a library's calls in a child process. A call may hang, or kill the child."""

    # `ask` makes each call only once, because a new child gets the results so far. A key names a function and its
    # arguments, such as `nvmlDeviceGetName/3`. The first argument is the device.

    reason: Callable[[Exception], Json]  # makes the answer that replaces a value that could not be read
    failures: tuple[type[Exception], ...]
    answers: dict[str, Json] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)  # calls that hung or died, with the reason
    parent: Parent | None = None  # None: make no call
    unsent: tuple[Json, ...] = ()

    def ask(self, key: str, call: Callable[[], Json]) -> Json:
        """Return the result of `call`, or `{"unreadable": reason}`.

        If a result for `key` is stored already, return the stored result without a call.
        """
        return self.answers[key] if key in self.answers else self._made(key, call, lambda value: value)

    def again(self, key: str, call: Callable[[], Any]) -> Any:
        """Make `call` in this child, and return its result, or None if the call failed.

        Use this method for calls with an effect on only one process, such as nvmlInit.
        """
        # The call is skipped if the same call hung before, or if too many similar calls hung.
        got: list[Any] = [None]

        def keep(value: Any) -> Json:
            got[0] = value
            return True

        self._made(key, call, keep)
        return got[0]

    def outcome(self, key: str) -> Json:
        """Return True if the call of `again` for `key` succeeded, otherwise `{"unreadable": reason}`."""
        return self.answers.get(key, {"unreadable": self._refusal(key) or NEVER})

    def _made(self, key: str, call: Callable[[], Any], keep: Callable[[Any], Json]) -> Json:
        refusal = self._refusal(key)
        if refusal or self.parent is None:
            return self.outcome(key) if key in self.answers else {"unreadable": refusal or NEVER}
        self.parent.send(*self.unsent, {"asking": key})
        try:
            answer = keep(call())
        except self.failures as error:
            answer = self.reason(error)
        self.unsent = ({"asked": key, "answer": answer},)
        self.answers[key] = answer
        return answer

    def _refusal(self, key: str) -> str:
        if not self.lost:
            return ""
        if key in self.lost:
            return self.lost[key]
        function, _, device = key.partition("/")
        functions = Counter(each.partition("/")[0] for each in self.lost)
        devices = Counter(each.split("/")[1] for each in self.lost if "/" in each)
        if functions[function] >= HUNG_CALLS_PER_NAME:
            return f"not read: {function} hung {functions[function]} times before"
        if device and devices[device.partition("/")[0]] >= HUNG_CALLS_PER_NAME:
            return "not read: other calls on this GPU hung before"
        return ""


@dataclass(frozen=True, slots=True)
class Slow:
    """A function that may be slow on a healthy machine, with limits in seconds for one call and for all calls."""

    function: str
    call_s: float
    all_s: float


@dataclass(slots=True)
class _Clock:
    """The time limits of a library's calls, on the clock of the crew.

    Slow calls have separate limits.
    """

    now: Callable[[], float]
    end_at: float
    slow: Slow
    slow_s: float = 0.0
    asked_at: float = 0.0

    def is_slow(self, key: str) -> bool:
        return bool(key) and key.partition("/")[0] == self.slow.function

    def left_s(self, asking: str) -> float:
        """Return the seconds that the current call may still take."""
        left_s = self.end_at - self.now()
        return max(left_s, self.slow.all_s - self.slow_s - self._in_call_s()) if self.is_slow(asking) else left_s

    def switch(self, asked: str, asking: str) -> None:
        """Record that the call `asked` has ended and that the call `asking` has begun.

        The time of a slow call does not count toward the limit of the other calls.
        """
        if self.is_slow(asked):
            self.slow_s += self._in_call_s()
            self.end_at += self._in_call_s()
        self.asked_at = self.now()

    def _in_call_s(self) -> float:
        return self.now() - self.asked_at


def isolate_calls(
    program: Callable[[Asker], Json],
    failures: tuple[type[Exception], ...],
    reason: Callable[[Exception], Json],
    total_s: float = CALLS_S,
    slow: Slow | None = None,
) -> Json:
    """Return the result of `program`, which makes library calls through an Asker in a child process.

    Call this function from a process with a single thread, because the function forks.
    """
    # A call fails if the call hangs, kills the child, is too late, or raises one of `failures`. `reason` makes the JSON
    # value of the exception. If a call stalls, a new child takes over the answers so far and skips the call. `total_s`
    # is the limit in seconds for all calls, without the `slow` calls.
    asker = Asker(reason, failures)
    with Crew[str]() as crew:
        clock = _Clock(crew.now, crew.now() + total_s, slow or Slow("", 0.0, 0.0))
        while crew.now() < clock.end_at and not _one_child(crew, program, asker, clock):
            continue
    return program(asker)


def _one_child(crew: Crew[str], program: Callable[[Asker], Json], asker: Asker, clock: _Clock) -> bool:
    """Run `program` in one child process, and record the results of its calls.

    Return True if no other child is needed. The child ends when it has finished, or dies in a call. The child is killed
    if it hangs in a call, or if the time is up.
    """

    def answer(parent: Parent) -> None:
        asker.parent = parent
        program(asker)
        parent.send(*asker.unsent, {"finished": True})

    crew.fork(CALLER, answer)
    asking, has_answered = "", False
    while True:
        left_s = clock.left_s(asking)
        # The driver may load in its first call, which takes seconds.
        patience_s = (LATER_STALL_S if asker.lost else FIRST_STALL_S) if has_answered else left_s
        patience_s = clock.slow.call_s if clock.is_slow(asking) else patience_s
        crew.expect(CALLER, min(patience_s, left_s))
        for _, message, lost in crew.listen():
            if lost:
                if not asking:  # an end without a call is a defect of the program: asking again would not help
                    return lost is not Lost.LATE
                is_stuck = patience_s < left_s or not has_answered
                stuck = f"{NO_ANSWER} {patience_s:.1f} s: the call hangs" if is_stuck else NEVER
                asker.lost[asking] = stuck if lost is Lost.LATE else "the process died in this call"
                clock.switch(asking, "")
                return False
            if "finished" in message:
                crew.end(CALLER)
                return True
            clock.switch(asking, message.get("asking", ""))
            asking = message.get("asking", "")
            if "asked" in message:
                asker.answers[message["asked"]] = message["answer"]
                has_answered = True
