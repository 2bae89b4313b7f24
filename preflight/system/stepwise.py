"""Make many calls into a library that may hang or die in any of them, and lose only that one call.

The calls are made in a child, which writes a JSON line before and after each. A call that stalls costs the child, not
what was read before it: the next child takes over with the answers so far and does not make that call again.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from preflight.model.gap import NO_ANSWER
from preflight.system.isolate import REAP_S
from preflight.system.machine import Json
from preflight.system.processes import die_with_parent
from preflight.system.waiting import wait_for

TOTAL_S = 4.3  # leaves the probe's process time to answer within its own 5 s
FIRST_STALL_S = 2.0
LATER_STALL_S = 0.5  # a library that hung once gets less patience
HUNG_CALLS_PER_NAME = 2  # then neither that function nor that device is asked again
NEVER = "not asked: the time for it was up"


@dataclass(slots=True)
class Asker:
    """Makes each call once in all children together, and gives what is known where it makes none.

    A key is a function and its arguments, such as `nvmlDeviceGetName/3`; its first argument is the device.
    """

    reason: Callable[[Exception], Json]  # what stands in the place of a value that could not be read
    failures: tuple[type[Exception], ...]
    answers: dict[str, Json] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)  # calls that hung or died, with the reason
    write: Callable[[bytes], None] | None = None  # None: make no call
    pending: bytes = b""

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
        if refusal or self.write is None:
            return self.outcome(key) if key in self.answers else {"unreadable": refusal or NEVER}
        self.write(self.pending + _line({"asking": key}))
        try:
            answer = keep(call())
        except self.failures as error:
            answer = self.reason(error)
        self.pending = _line({"asked": key, "answer": answer})
        self.answers[key] = answer
        return answer

    def finish(self) -> None:
        """Write what is left."""
        if self.write is not None:
            self.write(self.pending + _line({"finished": True}))

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


def ask_stepwise(
    program: Callable[[Asker], Json],
    failures: tuple[type[Exception], ...],
    reason: Callable[[Exception], Json],
    total_s: float = TOTAL_S,
) -> Json:
    """Return what the program assembles from its calls; those that hang, die or come too late are unreadable.

    Must be called from a process with a single thread, since it forks.
    """
    asker = Asker(reason, failures)
    end_at = time.monotonic() + total_s
    while time.monotonic() < end_at and not _one_child(program, asker, end_at):
        continue
    return program(asker)


def _one_child(program: Callable[[Asker], Json], asker: Asker, end_at: float) -> bool:
    """Run one child and take in what it answers; tell whether nothing is left to ask."""
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent(parent)
            os.close(reader)
            asker.write = lambda data: _write_all(writer, data)
            program(asker)
            asker.finish()
        finally:
            os._exit(0)
    os.close(writer)
    try:
        return _listen(reader, asker, end_at)
    finally:
        os.close(reader)
        _end(pid)


def _listen(reader: int, asker: Asker, end_at: float) -> bool:
    """Take in answers until the child has finished, is stuck in a call, died in one, or time is up."""
    rest, asking, has_answered = b"", "", False
    while True:
        left_s = end_at - time.monotonic()
        # The driver may wake every GPU in its first call, which takes seconds.
        patience_s = (LATER_STALL_S if asker.lost else FIRST_STALL_S) if has_answered else left_s
        readable = wait_for([reader], (), max(0.0, min(patience_s, left_s)))
        data = os.read(reader, 1 << 16) if readable else b""
        if not data:
            if not asking:
                return bool(readable)  # an end without a call is a defect of the program: asking again would not help
            stuck = (
                f"{NO_ANSWER} {patience_s:.1f} s: the call hangs" if patience_s < left_s or not has_answered else NEVER
            )
            asker.lost[asking] = "the process died in this call" if readable else stuck
            return False
        *lines, rest = (rest + data).split(b"\n")
        for line in map(json.loads, lines):
            if "finished" in line:
                return True
            asking = line.get("asking", "")
            if "asked" in line:
                asker.answers[line["asked"]] = line["answer"]
                has_answered = True


def _line(message: dict[str, Json]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _end(pid: int) -> None:
    """Kill and reap; a process in uninterruptible sleep is left to the kernel."""
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + REAP_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
        time.sleep(0.001)
