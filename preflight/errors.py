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
     |   +- NotRecorded            the recording of a machine does not contain this value
     |   +- OutOfGpuMemory         a GPU had no memory left for a test, which says nothing about its health
     +- NotApplicable              a check does not apply here
     +- NotRun                     the trial or test that a check judges was not run
     +- NotReady                   exit_code 1 or 3: Report.raise_unless_ready() of a report that is not ready

    Stopped                        raised by a signal handler, at any place; no other code may handle it as an error
     +- DeadlinePassed             exit_code 3: --deadline came before there was any result
     +- Interrupted                exit_code 130, 143 or 129: a signal asked preflight to stop

A message gives, in one line, what failed, where, what was found there and what to do.
"""


class PreflightError(Exception):
    """The base class of preflight's errors.

    `exit_code` is the exit code of the command line.
    """

    exit_code = 3


class UsageError(PreflightError):
    """The request of the user is invalid, or can't be carried out."""

    exit_code = 2


class MalformedInput(UsageError):
    """Input from outside does not have the expected format."""


class OutputError(PreflightError):
    """A result could not be written."""


class HarnessError(PreflightError):
    """A part of preflight failed. This error says nothing about the machine."""


class BrokenInstallation(HarnessError):
    """A part or a dependency of preflight can't be imported."""


class LaunchError(HarnessError):
    """A process that starts or supervises the ranks did not start, or died."""


class MeetingError(HarnessError):
    """The nodes did not join the run, or a node left the run.

    The message names the node and the reason.
    """


class UnreadableFact(PreflightError):
    """A value could not be read from the machine. The message gives the reason."""


class DispensableFact(UnreadableFact):
    """A value could not be read, but a node can be accepted without this value.

    Either preflight lacks the permissions to read the value, or no source has the value.
    """


class NotRecorded(UnreadableFact):
    """The recording of a machine does not contain the value to read."""


class OutOfGpuMemory(UnreadableFact):
    """A GPU has no memory left for a test."""


class NotApplicable(PreflightError):
    """A check does not apply here. The message gives the reason."""


class NotRun(PreflightError):
    """The test that a check needs was not run. The message gives the reason."""


class NotReady(PreflightError):
    """The report does not allow the job to start.

    The message is the headline of the report. `exit_code` is the exit code of the report.
    """

    def __init__(self, headline: str, exit_code: int) -> None:
        super().__init__(headline)
        self.exit_code = exit_code


class Stopped(BaseException):
    """A signal ended the current work.

    Stopped is not a subclass of Exception, because a library that catches every Exception would continue.
    """

    exit_code = 3


class DeadlinePassed(Stopped):
    """The deadline came before there was any result."""


class Interrupted(Stopped):
    """A signal asked preflight to stop."""

    def __init__(self, signal_number: int, name: str) -> None:
        super().__init__(f"stopped by {name}")
        self.exit_code = 128 + signal_number
