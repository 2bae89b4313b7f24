"""Every error that preflight raises on purpose.

    PreflightError                 exit_code 3: preflight is inconclusive
     +- UsageError                 exit_code 2: the request makes no sense here
     |   +- MalformedInput         a file or text from outside that is not in the format that it should have
     +- OutputError                a result could not be written (full disk, read-only directory)
     +- HarnessError               a part of preflight failed
     |   +- BrokenInstallation     what preflight needs can't be loaded
     |   +- LaunchError            torchrun or a supervisor did not start, or died
     |   +- MeetingError           another node did not join, left, or does not use preflight's protocol
     +- UnreadableFact             a fact that the machine did not give; probes turn it into a Gap
     |   +- DispensableFact        a fact without which a node can still be accepted
     |   +- NotRecorded            the recording of a machine does not contain this read
     |   +- OutOfGpuMemory         a GPU had no memory left for a test, which says nothing about its health
     +- NotApplicable              a check does not apply here
     +- NotRun                     the trial or test that a check judges was not run
     +- NotReady                   exit_code 1 or 3: Report.raise_unless_ready() of a report that is not ready

    Stopped                        raised by a signal handler, at any place; no other code must handle it as its own
     +- DeadlinePassed             exit_code 3: --deadline came before there was any result
     +- Interrupted                exit_code 130, 143 or 129: a signal asked preflight to stop

A message gives, in one line, what failed, where, what was found there and what to do.
"""


class PreflightError(Exception):
    """The base class of preflight's errors; `exit_code` is the exit code of the command line."""

    exit_code = 3


class UsageError(PreflightError):
    """The request can't be carried out as given."""

    exit_code = 2


class MalformedInput(UsageError):
    """Input from outside does not have the expected format."""


class OutputError(PreflightError):
    """A result could not be written."""


class HarnessError(PreflightError):
    """A part of preflight failed; this says nothing about the machine."""


class BrokenInstallation(HarnessError):
    """A part or a dependency of preflight can't be imported, or can't be imported within this process's limits."""


class LaunchError(HarnessError):
    """The launcher, torchrun or a per-rank agent (supervisor) did not start, or died."""


class MeetingError(HarnessError):
    """The nodes did not join, or a node left; the message names the node and the reason."""


class UnreadableFact(PreflightError):
    """The machine did not give a fact; the message is the reason."""


class DispensableFact(UnreadableFact):
    """A fact needs other permissions, or no source has it; a node can be accepted without it."""


class NotRecorded(UnreadableFact):
    """A recorded machine does not contain this read."""


class OutOfGpuMemory(UnreadableFact):
    """A GPU has no memory left for a test."""


class NotApplicable(PreflightError):
    """A check does not apply here; the message gives the reason."""


class NotRun(PreflightError):
    """The trial or test that a check judges was not run; the message gives the reason."""


class NotReady(PreflightError):
    """A report does not let the job start; the message is the report's headline, and `exit_code` is the report's."""

    def __init__(self, headline: str, exit_code: int) -> None:
        super().__init__(headline)
        self.exit_code = exit_code


class Stopped(BaseException):
    """A signal ended the current work.

    Stopped is no Exception, because a library that catches every Exception would continue.
    """

    exit_code = 3


class DeadlinePassed(Stopped):
    """The deadline came before there was any result."""


class Interrupted(Stopped):
    """A signal asked preflight to stop."""

    def __init__(self, signal_number: int, name: str) -> None:
        super().__init__(f"stopped by {name}")
        self.exit_code = 128 + signal_number
