"""What each command takes: its options, their defaults and the text of its --help.

The function of the command, in the file that the table of `program.py` names, is given such a record. To read arguments
and to print help takes no more than this file: what the functions need takes many times as long to load.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import typer

from preflight.check import option_kinds, options
from preflight.check.option_kinds import PRINTED, choice, timed, valued
from preflight.check.request import Request as CheckOptions  # noqa: F401  one of the commands too
from preflight.cli.explain_options import ExplainOptions  # noqa: F401
from preflight.cli.output import STDOUT
from preflight.cli.timeout_options import TimeoutOptions  # noqa: F401  one of the commands too
from preflight.model.profile import Profile
from preflight.show.formats import Format

FLEET_PAGE = "fleet.html"


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Time every collective under the default settings; -v prints nccl-tests' table.

    Exit codes: 0 the defaults work, 1 they do not, 2 usage, 3 preflight could not look.
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
        "Print one plain line for a scheduler, of the failures of these classes: gpu, or gpu,host,fabric. They alone "
        "decide between exit codes 0 and 1.",
        "--reason",
        group=PRINTED,
    ),
]


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """Print what this node is made of, and the findings that follow from that alone. Starts nothing, needs no torch.

    Exit codes: 0 nothing wrong, 1 something is, 2 usage, 3 preflight could not look.
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
    """Write everything that the probes read of this machine as one JSON, for `preflight probe --machine` elsewhere.

    Host names, MAC and IP addresses, GUIDs, serials and UUIDs are replaced, the same ones alike.
    """

    output: options.Output = STDOUT
    sysroot: options.SysrootOption = None


Pid = Annotated[int | None, valued("PID", "The job of this rank, or below this launcher.", "--pid")]
JobOption = Annotated[str | None, valued("ID", "The job with this id: its scheduler's, or torchrun's run id.", "--job")]
User = Annotated[str | None, valued("NAME", "The job of this user (root only).", "--user")]
Out = Annotated[str | None, valued("DIR", "Write this node's evidence there, for --merge.", "--out")]
Merge = Annotated[str | None, valued("DIR", "Judge what several nodes wrote there; look at nothing here.", "--merge")]
Native = Annotated[bool, typer.Option("--native", help="C and C++ frames too; stops each process for milliseconds.")]
Dump = Annotated[bool, typer.Option("--dump", help="Have torch write flight recorder dumps, where its pipe is set up.")]
AskRas = Annotated[
    bool | None,
    typer.Option(
        "--ras/--no-ras",
        help="Ask NCCL's RAS even in releases of NCCL where a question may crash the job, or never. "
        "[default: releases that were reviewed]",
    ),
]
Watch = Annotated[float | None, timed("Watch for so long at most whether ranks move (6s).", "--watch")]


@dataclass(frozen=True, slots=True)
class StuckOptions:
    """Say of a job that hangs now which rank is where and why, without harming it.

    Looks at the ranks on this node; signals, changes and kills nothing, and writes nothing but --out and --json.
    Exit codes: 0 not stuck, 1 stuck and said why, 2 usage, 3 could not tell.
    """

    pid: Pid = None
    job: JobOption = None
    user: User = None
    watch: Watch = None
    native: Native = False
    dump: Dump = False
    ras: AskRas = None
    out: Out = None
    merge: Merge = None
    json: option_kinds.JsonPath = None
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False


ReportFile = Annotated[str, typer.Argument(metavar="REPORT", help="What `preflight check` wrote; - is stdin.")]
FormatOption = Annotated[Format, choice("The form that is wanted.", "--format", "-f")]


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """Render a saved report in another form. Looks at nothing else.

    Exit codes: 0 rendered, 2 no report or none that has this form, 3 it could not be written.
    """

    report: ReportFile
    form: FormatOption = Format.CONSOLE
    output: options.Output = STDOUT


Reports = Annotated[list[str], typer.Argument(metavar="REPORT_OR_DIR...", help="Reports, or directories of *.json.")]
OutDir = Annotated[
    str | None, valued("DIR", f"Write {FLEET_PAGE} and the lists of hosts there.", "--out", group=PRINTED)
]


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """Compare the reports of many nodes: group equal hardware, name the odd ones out, show what differs.

    Exit codes: 0 all alike, 1 outliers or failing nodes, 2 usage, 3 a node is unknown or no report could be read.
    """

    reports: Reports
    json: option_kinds.JsonPath = None
    out: OutDir = None
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False


GoodReports = Annotated[
    list[str], typer.Argument(metavar="REPORT_OR_DIR...", help="Reports of known-good, equal nodes.")
]
BoundsOutput = Annotated[str, valued("FILE", "Where the bounds go; - is stdout.", "--output", "-o", group=PRINTED)]


@dataclass(frozen=True, slots=True)
class BaselineOptions:
    """Learn from reports of known-good nodes what such a node reaches; several reports of a host are repetitions.

    Exit codes: 0 learnt, 2 usage (mixed hardware, too few good nodes), 3 it could not be written.
    """

    reports: GoodReports
    output: BoundsOutput
    verbose: option_kinds.Verbose = False
    quiet: option_kinds.Quiet = False


CheckNames = Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Checks, as findings name them.")]


@dataclass(frozen=True, slots=True)
class ChecksOptions:
    """List the checks, or explain those that are named: what each promises, whom it blames, what it can't see.

    Exit codes: 0 listed, 2 there is no such check.
    """

    names: CheckNames = None
    json: option_kinds.JsonPath = None


class DocumentKind(str, Enum):
    """Which document a schema describes."""

    REPORT = "report"
    STUCK = "stuck"


Document = Annotated[DocumentKind, typer.Argument(help="The document: what check writes, or stuck --json.")]


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """Print the JSON Schema (2020-12) of the report that `preflight check` writes, or of another document."""

    document: Document = DocumentKind.REPORT
