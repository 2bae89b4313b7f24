"""Run in a process of its own what may hang or die: whole functions side by side, or a library's calls one by one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from preflight.errors import Interrupted
from preflight.model.gap import NO_ANSWER
from preflight.system.child import ChildProcess, Parent, fork_child
from preflight.system.machine import Json
from preflight.system.wakeups import OwnTime, wait_for

CALLS_S = 4.3  # leaves the probe's process time to answer within its own 5 s
FIRST_STALL_S = 2.0
LOOK_S = 0.25  # how often it is looked whether this process itself stood still
LATER_STALL_S = 0.5  # a library that hung once gets less patience
HUNG_CALLS_PER_NAME = 2  # then neither that function nor that device is asked again
NEVER = "not asked: the time for it was up"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a function returned, or why it did not."""

    value: Json
    failure: str  # empty when it returned
    duration_s: float
    is_late: bool = False  # its limit came first


@dataclass(slots=True)
class _Isolated:
    child: ChildProcess
    deadline_s: float
    answer: Answer | None = None


def run_isolated(
    functions: Mapping[str, Callable[[], Json]], limits_s: Mapping[str, float],
    meanwhile: Callable[[], object] = tuple, when_stopped: Callable[[Interrupted], object] | None = None,
) -> dict[str, Answer]:  # fmt: skip
    """Return an Answer per function. A function that raises, dies or takes longer than its limit has a `failure`.

    `meanwhile` is called once they run. With `when_stopped` a signal is told to it, and what is known is returned.
    Must be called from a process with a single thread, since it forks.
    """
    start = time.monotonic()
    running: dict[str, _Isolated] = {}
    try:
        for name, function in functions.items():
            child = fork_child(lambda parent: parent.send(_outcome(function)))  # noqa: B023  called in the child
            running[name] = _Isolated(child, time.monotonic() + limits_s[name])
        meanwhile()
        own_time = OwnTime()
        while waiting := [each for each in running.values() if each.answer is None]:
            _collect(waiting, start, own_time)
    except Interrupted as error:
        if when_stopped is None:
            raise
        when_stopped(error)
        for each in running.values():
            each.answer = each.answer or Answer(None, str(error), time.monotonic() - start)
            each.child.kill()
    finally:
        for each in running.values():
            if each.answer is None:
                each.child.kill()
    return {name: each.answer for name, each in running.items() if each.answer}


def _outcome(function: Callable[[], Json]) -> dict[str, Json]:
    try:
        return {"value": function()}
    except Exception as error:  # noqa: BLE001  a probe's defect becomes that fact's gap, never the end of the run
        return {"failure": f"{type(error).__name__}: {error}"}


def _collect(waiting: list[_Isolated], start: float, own_time: OwnTime) -> None:
    left_s = min(each.deadline_s for each in waiting) - time.monotonic()
    readable = wait_for([each.child.fd for each in waiting], (), max(0.0, min(left_s, LOOK_S)))
    gap_s = own_time.look(LOOK_S)  # neither we nor the children ran
    for each in waiting:
        each.deadline_s += gap_s
    for each in waiting:
        elapsed_s = time.monotonic() - start
        outcomes = each.child.receive() if each.child.fd in readable else []
        if outcomes:
            each.answer = Answer(outcomes[0].get("value"), outcomes[0].get("failure", ""), elapsed_s)
        elif each.child.fd < 0:
            each.answer = Answer(None, "the process that read it died", elapsed_s)
        elif time.monotonic() >= each.deadline_s:
            each.answer = Answer(None, f"{NO_ANSWER} {elapsed_s:.1f} s; the call is stuck", elapsed_s, True)
        if each.answer is not None:
            each.child.kill()


@dataclass(slots=True)
class Asker:
    """Makes each call once in all children together, and gives what is known where it makes none.

    A key is a function and its arguments, such as `nvmlDeviceGetName/3`; its first argument is the device.
    """

    reason: Callable[[Exception], Json]  # what stands in the place of a value that could not be read
    failures: tuple[type[Exception], ...]
    answers: dict[str, Json] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)  # calls that hung or died, with the reason
    parent: Parent | None = None  # None: make no call
    unsent: tuple[Json, ...] = ()

    def ask(self, key: str, call: Callable[[], Json]) -> Json:
        """Return the call's answer or `{"unreadable": reason}`."""
        return self.answers[key] if key in self.answers else self._made(key, call, lambda value: value)

    def again(self, key: str, call: Callable[[], Any]) -> Any:
        """Return what the call gives in this process (a handle), None where none is made; see `ask` for its outcome."""
        got: list[Any] = [None]

        def keep(value: Any) -> Json:
            got[0] = value
            return True

        self._made(key, call, keep)
        return got[0]

    def outcome(self, key: str) -> Json:
        """Return the answer to a call that was made with `again`."""
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
            return f"not asked: {function} hung {functions[function]} times before"
        if device and devices[device.partition("/")[0]] >= HUNG_CALLS_PER_NAME:
            return "not asked: other calls on this GPU hung before"
        return ""


@dataclass(frozen=True, slots=True)
class Slow:
    """A function whose calls may take long on a healthy machine, each and all together."""

    function: str
    call_s: float
    all_s: float


@dataclass(slots=True)
class _Clock:
    """When the time for all calls is up; that of slow ones is their own."""

    end_at: float
    slow: Slow
    slow_s: float = 0.0
    asked_at: float = 0.0

    def is_slow(self, key: str) -> bool:
        return bool(key) and key.partition("/")[0] == self.slow.function

    def left_s(self, asking: str) -> float:
        """Return how long the call that is asked now may take at most."""
        left_s = self.end_at - time.monotonic()
        return max(left_s, self.slow.all_s - self.slow_s - self._in_call_s()) if self.is_slow(asking) else left_s

    def switch(self, asked: str, asking: str) -> None:
        """Take a call's end, and the beginning of another; the time of a slow one is given back to the others."""
        if self.is_slow(asked):
            self.slow_s += self._in_call_s()
            self.end_at += self._in_call_s()
        self.asked_at = time.monotonic()

    def _in_call_s(self) -> float:
        return time.monotonic() - self.asked_at


def isolate_calls(
    program: Callable[[Asker], Json],
    failures: tuple[type[Exception], ...],
    reason: Callable[[Exception], Json],
    total_s: float = CALLS_S,
    slow: Slow | None = None,
) -> Json:
    """Return what the program assembles from its calls; those that hang, die or come too late are unreadable.

    The calls are made in a child, which writes a line before and after each. A call that stalls costs the child, not
    what was read before it: the next child takes over with the answers so far and does not make that call again.
    The time of `slow` calls does not count as the others'. Must be called from a process with a single thread, since
    it forks.
    """
    asker = Asker(reason, failures)
    clock = _Clock(time.monotonic() + total_s, slow or Slow("", 0.0, 0.0))
    while time.monotonic() < clock.end_at and not _one_child(program, asker, clock):
        continue
    return program(asker)


def _one_child(program: Callable[[Asker], Json], asker: Asker, clock: _Clock) -> bool:
    """Run one child and take in what it answers; tell whether nothing is left to ask."""

    def answer(parent: Parent) -> None:
        asker.parent = parent
        program(asker)
        parent.send(*asker.unsent, {"finished": True})

    child = fork_child(answer)
    try:
        return _listen(child, asker, clock)
    finally:
        child.kill()


def _listen(child: ChildProcess, asker: Asker, clock: _Clock) -> bool:
    """Take in answers until the child has finished, is stuck in a call, died in one, or time is up."""
    asking, has_answered = "", False
    while True:
        left_s = clock.left_s(asking)
        # The driver may load in its first call, which takes seconds.
        patience_s = (LATER_STALL_S if asker.lost else FIRST_STALL_S) if has_answered else left_s
        patience_s = clock.slow.call_s if clock.is_slow(asking) else patience_s
        readable = wait_for([child.fd], (), max(0.0, min(patience_s, left_s)))
        messages = child.receive() if readable else []
        if not readable or child.fd < 0:
            if not asking:
                return bool(readable)  # an end without a call is a defect of the program: asking again would not help
            is_stuck = patience_s < left_s or not has_answered
            stuck = f"{NO_ANSWER} {patience_s:.1f} s: the call hangs" if is_stuck else NEVER
            asker.lost[asking] = "the process died in this call" if readable else stuck
            clock.switch(asking, "")
            return False
        for message in messages:
            if "finished" in message:
                return True
            clock.switch(asking, message.get("asking", ""))
            asking = message.get("asking", "")
            if "asked" in message:
                asker.answers[message["asked"]] = message["answer"]
                has_answered = True
