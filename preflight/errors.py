"""Every error that preflight raises on purpose.

    PreflightError                 exit_code 3: preflight is inconclusive
     +- UsageError                 exit_code 2: what was asked for makes no sense here
     |   +- MalformedInput         a file or text from outside that can't be read as what it claims to be
     +- OutputError                a result could not be written (full disk, read-only directory)
     +- HarnessError               preflight's own machinery failed
     |   +- BrokenInstallation     something that preflight depends on can't be imported
     |   +- LaunchError            torchrun or a supervisor did not start, or died
     |   +- MeetingError           another node did not come, went away, or does not speak as one
     +- UnreadableFact             a fact that the machine would not give; probes turn it into a Gap
     |   +- DispensableFact        one without which a node can be accepted all the same
     |   +- NotRecorded            the recording of a machine does not hold this read
     |   +- OutOfGpuMemory         a GPU had no memory left for a test, which says nothing about its health
     +- NotApplicable              a check has nothing to look at here
     +- NotRun                     what a check judges was not run
     +- NotReady                   exit_code 1 or 3: Report.raise_unless_ready() of a report that is not ready

    Stopped                        raised by a signal's handler, so anywhere: nothing on its way takes it for its own
     +- DeadlinePassed             exit_code 3: --deadline came before anything was known
     +- Interrupted                exit_code 130, 143 or 129: a signal asked preflight to stop

Messages say what failed, where, what was found there and what to do, in one line.
"""


class PreflightError(Exception):
    """Base of the tree; `exit_code` is what the command line exits with."""

    exit_code = 3


class UsageError(PreflightError):
    """The request can't be carried out as given."""

    exit_code = 2


class MalformedInput(UsageError):
    """Input from outside that is not what it claims to be."""


class OutputError(PreflightError):
    """A result could not be written."""


class HarnessError(PreflightError):
    """Preflight's own machinery failed; says nothing about the machine."""


class BrokenInstallation(HarnessError):
    """A part of preflight, or something that it depends on, can't be imported."""


class LaunchError(HarnessError):
    """The launcher, torchrun or a supervisor did not start, or died."""


class MeetingError(HarnessError):
    """The nodes did not meet, or one of them went away; the message says which and why."""


class UnreadableFact(PreflightError):
    """The machine would not give a fact; the message is the reason."""


class DispensableFact(UnreadableFact):
    """A fact that needs other rights, or that no source tells; a node can be accepted without it."""


class NotRecorded(UnreadableFact):
    """A recorded machine does not hold this read."""


class OutOfGpuMemory(UnreadableFact):
    """A GPU has no memory left for a test."""


class NotApplicable(PreflightError):
    """There is nothing here that a check could look at; the message says why."""


class NotRun(PreflightError):
    """The trial or test that a check judges did not take place; the message says why."""


class NotReady(PreflightError):
    """A report does not say that the job may start; the message is its headline, `exit_code` the report's."""

    def __init__(self, headline: str, exit_code: int) -> None:
        super().__init__(headline)
        self.exit_code = exit_code


class Stopped(BaseException):
    """A signal ended what was going on. No Exception: a library that takes all of those would go on."""

    exit_code = 3


class DeadlinePassed(Stopped):
    """The deadline came before there was anything to tell."""


class Interrupted(Stopped):
    """A signal asked preflight to stop."""

    def __init__(self, signal_number: int, name: str) -> None:
        super().__init__(f"stopped by {name}")
        self.exit_code = 128 + signal_number
