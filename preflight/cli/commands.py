"""The options of each command: the names, the default values and the help texts."""
# Each class has the options of one command. The table in `program.py` names the function of each command. This module
# must load fast, because --help needs only this module.

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import typer

from preflight.check import option_kinds, options
from preflight.check.option_kinds import NODES, PRINTED, choice, timed, valued, words
from preflight.check.request import Request as CheckOptions  # noqa: F401  one of the commands too
from preflight.cli.output import STDOUT
from preflight.model.profile import Profile
from preflight.show.formats import Format

FLEET_PAGE = "fleet.html"
EVIDENCE = "Evidence"  # of stuck


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Time every collective under the default settings.

    With -v, `bench` prints a table like nccl-tests. Exit codes: 0 the default settings work, 1 the default settings
    fail, 2 usage error, 3 inconclusive.
    """

    gpus: options.Gpus = None
    nproc: options.Nproc = None
    backend: options.Backend = None
    profile: options.ProfileOption = Profile.STANDARD
    deadline: options.Deadline = None
    json: option_kinds.JsonPath = None
    stage_limit: options.StageLimit = None
    collectives: options.Collectives = "all"
    sizes: options.Sizes = None
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False


ReasonOf = Annotated[
    str | None,
    valued(
        "CLASSES",
        "Print one line for a scheduler. The line contains the failures of CLASSES, such as gpu,host,fabric. Only "
        "these failures give exit code 1.",
        "--reason",
        group=PRINTED,
    ),
]


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """Show the hardware and limits of this node, and their faults.

    `probe` starts no rank and needs no torch. Exit codes: 0 no fault found, 1 fault found, 2 usage error,
    3 inconclusive.
    """

    gpus: options.Gpus = None
    json: option_kinds.JsonPath = None
    sysroot: options.SysrootOption = None
    topo: options.TopoOption = None
    machine: options.MachineOption = None
    strict: options.Strict = False
    deadline: options.ProbeDeadline = None
    reason: ReasonOf = None
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """Record this machine in one JSON file, for `probe --machine`.

    In the file, pseudonyms replace host names, MAC and IP addresses, GUIDs, serial numbers and UUIDs.
    """

    output: options.Output = STDOUT
    sysroot: options.SysrootOption = None


ReportedIn = Annotated[str, valued("FILE", "Write the archive to FILE.", "--output", "-o")]
ReportDeadline = Annotated[
    float | None,
    timed("Finish within T. If the time is too short, leave out the last parts [default: 10m].", "--deadline"),
]


OnReportNodes = Annotated[
    str | None,
    valued(
        "NODES",
        "Run gpu-report on NODES. Write ssh:node[01-04], ssh:@FILE (one host per line in FILE) or slurm:4. With --on, "
        "--output names a folder.",
        "--on",
        group=NODES,
    ),
]


@dataclass(frozen=True, slots=True)
class GpuReportOptions:
    """Test real GPUs, and pack the results for an issue.

    By default, `gpu-report` takes 10 minutes at most. `gpu-report` needs no root, and uses the torch of this
    environment. The archive contains no addresses, UUIDs or serial numbers, and no names of hosts, users or jobs. Exit
    codes: 0 every test passed, 1 a test failed or found a fault, 2 usage error or a busy GPU, 3 no GPU can be used, or
    a node sent no result.
    """

    gpus: options.Gpus = None
    output: ReportedIn = "preflight-gpu.tar.gz"
    deadline: ReportDeadline = None
    on: OnReportNodes = None
    slurm_args: options.SlurmArgs = None


OfProcess = Annotated[
    int | None,
    typer.Argument(metavar="PID", show_default=False, help="PID of a rank or of the job's launcher, such as 4711."),
]
Pid = Annotated[int | None, valued("PID", "The same as the argument PID.", "--pid", rare=True)]
AllJobs = Annotated[bool, typer.Option("--all", help="Look at every job on this node, one after another.")]
JobOption = Annotated[
    str | None, valued("ID", "Look at the job whose scheduler job id or torchrun run id is ID.", "--job")
]
User = Annotated[str | None, valued("NAME", "Look at the job of the user NAME (only for root).", "--user")]
Out = Annotated[str | None, valued("DIR", "Write the evidence of this node to DIR, for --merge.", "--out", group=NODES)]
Merge = Annotated[
    str | None,
    valued(
        "DIR",
        "Read the files that several nodes wrote to DIR with --out, and find out why the job hangs. Do not look "
        "at this node.",
        "--merge",
        group=NODES,
    ),
]
OnJobsNodes = Annotated[
    str | None,
    valued(
        "NODES",
        "Look at NODES, and print one page. Write ssh:node[01-04], ssh:@FILE (one host per line in FILE) or "
        "slurm:node[01-04].",
        "--on",
        group=NODES,
    ),
]
Native = Annotated[
    bool,
    typer.Option(
        "--native",
        help="Also show C and C++ frames. For these frames, py-spy pauses each process for milliseconds.",
        rich_help_panel=EVIDENCE,
        hidden=True,
    ),
]
Dump = Annotated[
    bool,
    typer.Option(
        "--dump",
        help="If the job set TORCH_NCCL_DEBUG_INFO_PIPE_FILE, ask torch for flight recorder dumps.",
        rich_help_panel=EVIDENCE,
        hidden=True,
    ),
]
AskRas = Annotated[
    bool | None,
    typer.Option(
        "--ras/--no-ras",
        help="--ras: query the RAS service of NCCL in every release, although a query may crash the job. --no-ras: "
        "never query RAS [default: query RAS only in releases known to be safe].",
        rich_help_panel=EVIDENCE,
        hidden=True,
    ),
]
Watch = Annotated[float | None, timed("Observe the ranks for at most T [default: 6s].", "--watch")]


@dataclass(frozen=True, slots=True)
class StuckOptions:
    """Show where each rank of a hung job waits, and why.

    `stuck` looks at the ranks on this node. By default, `stuck` sends no signal and changes nothing in the job. With
    --native, --dump or --ras, `stuck` can affect the job. `stuck` writes files only with --out or --json. Exit codes:
    0 not stuck, 1 stuck, 2 usage error, 3 inconclusive.
    """

    of: OfProcess = None
    pid: Pid = None
    job: JobOption = None
    user: User = None
    all_jobs: AllJobs = False
    watch: Watch = None
    native: Native = False
    dump: Dump = False
    ras: AskRas = None
    out: Out = None
    merge: Merge = None
    on: OnJobsNodes = None
    json: option_kinds.JsonPath = None
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False


ReportFile = Annotated[str, typer.Argument(metavar="REPORT", help="Report of `preflight check`. Use - for stdin.")]
FormatOption = Annotated[
    Format | None,
    choice(
        f"Convert to NAME: {words(Format)} [default: by the suffix of --output, else console].",
        "--format",
        "-f",
        metavar="NAME",
    ),
]


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """Convert a saved report to another format.

    Exit codes: 0 written, 2 the input is no report, 3 the output could not be written. With --format env, the exit code
    is also 2 if the exit code in the report is not 0.
    """

    report: ReportFile
    form: FormatOption = None
    output: options.Output = STDOUT


Reports = Annotated[
    list[str], typer.Argument(metavar="REPORT_OR_DIR...", help="Reports, or folders with reports (*.json).")
]
OutDir = Annotated[
    str | None, valued("DIR", f"Write {FLEET_PAGE} and the lists of hosts to DIR.", "--out", group=PRINTED)
]


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """Compare the reports of many nodes, and list outliers.

    Nodes with equal hardware form a group. The output also shows which settings differ inside a group.

    Exit codes: 0 no outliers, 1 outliers or failed nodes, 2 usage error, 3 a node has no verdict, or no report could be
    read.
    """

    reports: Reports
    json: option_kinds.JsonPath = None
    out: OutDir = None
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False


GoodReports = Annotated[
    list[str],
    typer.Argument(
        metavar="REPORT_OR_DIR...", help="Reports of known-good nodes with equal hardware, or folders with reports."
    ),
]
BoundsOutput = Annotated[
    str, valued("FILE", "Write the thresholds to FILE. Use - for stdout.", "--output", "-o", group=PRINTED)
]


@dataclass(frozen=True, slots=True)
class BaselineOptions:
    """Compute speed thresholds from reports of known-good nodes.

    Several reports of one host count as repetitions. Exit codes: 0 written, 2 mixed hardware or too few good nodes,
    3 the output could not be written.
    """

    reports: GoodReports
    output: BoundsOutput
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False


GoodFile = Annotated[
    str, typer.Argument(metavar="GOOD", help="Report or capture from a time when the node worked. Use - for stdin.")
]
NowFile = Annotated[
    str | None, typer.Argument(metavar="NOW", help="Current report or capture [default: this machine].")
]


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """Show what changed on a node since it worked.

    The most suspicious change comes first. `diff` compares two reports of one node, or the reports of two equal nodes.
    Without NOW, `diff` probes this machine. Exit codes: 0 no change that matters, 1 a change that may matter, 2 usage
    error, 3 no node in common.
    """

    good: GoodFile
    now: NowFile = None
    json: option_kinds.JsonPath = None
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False


CheckNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME...", help="Names of checks. Each finding shows the name of its check."),
]


@dataclass(frozen=True, slots=True)
class ChecksOptions:
    """List the checks, or explain the named checks.

    For each named check, `checks` prints the class of the check, what the check verifies, and what the check can't see.
    Exit codes: 0 listed, 2 no such check.
    """

    names: CheckNames = None
    json: option_kinds.JsonPath = None
    verbose: option_kinds.Verbose = False


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """Check this installation, and list what is missing.

    `doctor` reads the version of torch without importing torch. Exit codes: 0 the installation has no fault, 2 usage
    error, 3 the installation has a fault.
    """

    json: option_kinds.JsonPath = None
    quiet: option_kinds.Quiet = False


class DocumentKind(str, Enum):
    """The kind of document that a schema describes."""

    REPORT = "report"
    STUCK = "stuck"


Document = Annotated[
    DocumentKind, typer.Argument(help="Describe the report of `check` (report), or the JSON of `stuck` (stuck).")
]


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """Print the JSON Schema of the report, or of another document.

    The schema follows JSON Schema draft 2020-12. Exit codes: 0 printed, 2 usage error.
    """

    document: Document = DocumentKind.REPORT
