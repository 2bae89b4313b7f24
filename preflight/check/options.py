"""The options that several commands share, and the parsers of their values."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

import typer

from preflight.check.option_kinds import ELSEWHERE, JUDGED, NODES, PRINTED, TRIED, choice, switch, timed, valued, words
from preflight.errors import UsageError
from preflight.model.collective import Collective
from preflight.model.engine_options import Engine
from preflight.model.parsing import no_such, parse_duration_s
from preflight.model.profile import ALL_TESTS, EFFORTS, GpuTests, Profile
from preflight.show.formats import ALSO

LONGEST_DEADLINE_S = 7 * 86400.0
SIZES = re.compile(r"(\d{1,11})([KMG]?)(?::(\d{1,11})([KMG]?)(?::(\d{1,3}))?)?", re.ASCII | re.IGNORECASE)
SCALE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
DEADLINES = ", ".join(f"{each.deadline_s / 60:g}m" for each in EFFORTS.values())
LEAST_BYTES, MOST_BYTES = 8, 64 << 30


def _minutes(text: str) -> float:
    """Return the seconds in the value of --minutes.

    A number without a unit counts as minutes.
    """
    try:
        return float(text)
    except ValueError:
        return parse_duration_s(text, "--minutes") / 60


Gpus = Annotated[
    str | None,
    valued(
        "LIST",
        "GPU numbers as in nvidia-smi, such as 6,7,8,9 or 0-3, or UUIDs [default: CUDA_VISIBLE_DEVICES, else all].",
        group=TRIED,
    ),
]
Nproc = Annotated[
    int | None, valued("N", "Number of ranks for a backend that uses no GPUs [default: 2].", group=TRIED, rare=True)
]
Backend = Annotated[
    str | None,
    valued(
        "NAME",
        "Backend: nccl, gloo or NAME@MODULE. The Python module MODULE registers the backend NAME [default: nccl with "
        "GPUs, else gloo].",
        group=TRIED,
        rare=True,
    ),
]
ProfileOption = Annotated[
    Profile,
    choice(
        f"Duration: {', '.join(f'{name.value} ({each.words})' for name, each in EFFORTS.items())}.",
        "--profile",
        metavar="NAME",
        group=TRIED,
    ),
]
Deadline = Annotated[
    float | None,
    timed(f"Stop after T [default by profile: {DEADLINES}].", "--deadline", group=TRIED),
]
ProbeDeadline = Annotated[
    float | None,
    timed(
        "Stop after T, such as 30s or 1m, with partial results and exit code 3 [default: no limit].",
        "--deadline",
        group=TRIED,
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="With --profile burn, repeat the tests for N minutes, or for a time such as 1h [default: 10].",
        parser=_minutes,
        rich_help_panel=TRIED,
        hidden=True,
    ),
]
StageLimit = Annotated[
    float | None,
    timed(
        "After T, such as 120 or 5m, a stage of a test run counts as hung [default: each stage has its own limit].",
        "--stage-limit",
        group=TRIED,
        rare=True,
    ),
]
SharedDirectory = Annotated[
    str | None,
    valued(
        "DIR",
        "Measure the speed of DIR. On several nodes, also test whether all nodes use the same DIR.",
        "--checkpoint-dir",
        group=TRIED,
    ),
]
Strict = Annotated[bool, switch("Treat warnings as failures.", "--strict", group=JUDGED)]
Accept = Annotated[
    bool,
    switch(
        "Decide: accept the node (exit code 0) or reject it (1).",
        "--accept",
        group=JUDGED,
    ),
]
Shadow = Annotated[
    bool,
    switch(
        "Dry run: exit with 0 instead of 1 or 3. The report still contains the real verdict.",
        "--shadow",
        group=JUDGED,
        rare=True,
        envvar="PREFLIGHT_SHADOW",
    ),
]
PolicyFile = Annotated[
    str | None,
    valued(
        "FILE",
        "Apply the rules and waivers in FILE, a policy in TOML.",
        "--policy",
        group=JUDGED,
    ),
]
BaselineFile = Annotated[
    str | None,
    valued(
        "FILE",
        "Compare the speeds with the thresholds that `preflight baseline` wrote to FILE.",
        "--baseline",
        group=JUDGED,
        rare=True,
    ),
]
FabricFile = Annotated[
    str | None,
    valued(
        "FILE",
        "Compare the rate of each RDMA port with your own results of ib_write_bw. FILE contains the output of "
        "ib_write_bw for each device.",
        "--fabric",
        group=JUDGED,
        rare=True,
    ),
]
HistoryFolder = Annotated[
    str | None,
    valued(
        "DIR",
        "Read earlier reports from DIR. A GPU, a GPU pair or a port counts as faulty if it failed in 2 of the last "
        "3 runs that tested it. If the verdict is neither READY nor NODE ACCEPTED, the output shows what changed since "
        "the last run that had one of these verdicts.",
        "--history",
        group=JUDGED,
        rare=True,
    ),
]
EnvOut = Annotated[str, valued("PATH", "Write the settings to PATH.", group=PRINTED)]
ReportOut = Annotated[str, valued("PATH", "Full report as JSON.", group=PRINTED)]
Also = Annotated[
    list[str] | None,
    valued(
        "FORMAT=FILE",
        f"Also write the report to FILE. FORMAT is {', '.join(form.value for form in ALSO)}.",
        group=PRINTED,
    ),
]
Collectives = Annotated[
    str | None,
    valued(
        "LIST",
        "Measure these collectives: all, or a list such as all_reduce,broadcast. The names of nccl-tests are also "
        "valid.",
        "--collectives",
        group=TRIED,
        rare=True,
    ),
]
Sizes = Annotated[
    str | None,
    valued(
        "MIN:MAX:F",
        "Use message sizes from MIN to MAX bytes. Each size is F times the previous size. If :F is missing, F is 2 "
        "[default: the sizes of the profile].",
        "--sizes",
        group=TRIED,
        rare=True,
    ),
]
Tests = Annotated[
    str | None,
    valued(
        "LIST",
        "Choose tests in addition to the collectives: pairs (of GPUs), gpus, rails (RDMA ports) [default: all that "
        "the profile has]. For none of the three tests, give `collectives`.",
        "--tests",
        group=TRIED,
        rare=True,
    ),
]
Skip = Annotated[
    list[str] | None,
    valued(
        "CHECK",
        "Skip the check with the name CHECK (repeatable). If acceptance needs this check, --accept gives no verdict "
        "(exit code 3).",
        "--skip",
        group=JUDGED,
        rare=True,
    ),
]
Output = Annotated[str, valued("FILE", "Write the output to FILE. Use - for stdout.", "--output", "-o", group=PRINTED)]
# What `preflight run` tells its check, so that the page says what happens next.
Starts = Annotated[str, typer.Option("--starts", hidden=True)]
StartsOverSockets = Annotated[bool, typer.Option("--starts-over-sockets", hidden=True)]
ForEngine = Annotated[
    Engine | None,
    choice(
        f"Also print workarounds for this engine: {words(Engine)}.",
        "--for",
        metavar="NAME",
        group=PRINTED,
    ),
]
StartsIfUnknown = Annotated[bool, typer.Option("--starts-if-unknown", hidden=True)]
Keep = Annotated[
    bool, switch("Keep the run directory with all logs, even after success.", "--keep", group=PRINTED, rare=True)
]
Nnodes = Annotated[int | None, valued("N", "Number of nodes [default: from the scheduler].", "--nnodes", group=NODES)]
NodeRank = Annotated[
    int | None, valued("R", "Node rank, from 0 [default: from the scheduler].", "--node-rank", group=NODES)
]
OnNodes = Annotated[
    str | None,
    valued(
        "NODES",
        "Check NODES. Write ssh:node[01-40], ssh:@FILE, slurm:4 or k8s:4 (only prints a Kubernetes Job).",
        "--on",
        group=NODES,
    ),
]
Together = Annotated[
    bool,
    switch(
        "With --on ssh:... or slurm:..., make one joint run with one report. The joint run also tests the paths "
        "between the nodes.",
        "--together",
        group=NODES,
        rare=True,
    ),
]
Image = Annotated[
    str | None,
    valued(
        "NAME",
        "With --on k8s:..., use the image NAME of the job. preflight must be installed in this image.",
        "--image",
        group=NODES,
        rare=True,
    ),
]
Apply = Annotated[
    bool,
    switch(
        "With --on k8s:..., pass the Job to kubectl instead of printing the Job. The exit code is 3, because nothing "
        "is checked yet.",
        "--apply",
        group=NODES,
        rare=True,
    ),
]
SlurmArgs = Annotated[
    str | None,
    valued(
        "ARGS",
        "With --on slurm:..., pass ARGS, such as '-p gpu --gres=gpu:8', to salloc. Inside a Slurm job, pass "
        "ARGS to srun.",
        "--slurm-args",
        group=NODES,
        rare=True,
    ),
]
Endpoint = Annotated[
    str | None,
    valued(
        "HOST:PORT",
        "Address and port of node 0 [default: automatic].",
        "--rdzv-endpoint",
        group=NODES,
    ),
]
RunId = Annotated[
    str | None,
    valued(
        "ID",
        "Name of this run. Give the same ID on every node. Give different IDs to runs that use the same endpoint.",
        "--rdzv-id",
        group=NODES,
        rare=True,
    ),
]
TopoOption = Annotated[
    str | None,
    valued(
        "FILE",
        "Use FILE, the output of `nvidia-smi topo -m`, instead of this machine. Use - for stdin.",
        "--topo",
        group=ELSEWHERE,
        rare=True,
    ),
]
MachineOption = Annotated[
    str | None,
    valued(
        "FILE",
        "Use the machine that `preflight capture` recorded in FILE, instead of this machine. Use - for stdin.",
        "--machine",
        group=ELSEWHERE,
        rare=True,
    ),
]
PlayedMachine = Annotated[
    str | None,
    valued(
        "FILE",
        "Simulate the machine that `preflight capture` recorded in FILE. For --backend, give a stand-in for NCCL.",
        "--machine",
        group=ELSEWHERE,
        rare=True,
    ),
]
SysrootOption = Annotated[
    str | None,
    valued(
        "DIR",
        "Use the /sys and /proc tree that was recorded in DIR, instead of the tree of this machine.",
        group=ELSEWHERE,
        rare=True,
    ),
]


def parse_collectives(text: str) -> tuple[Collective, ...]:
    """Return the collectives that are named in `text`, a list separated by commas.

    The name `all` selects every collective, and the program names of nccl-tests are also valid. Raise UsageError if a
    name is unknown.
    """
    known = {each.value: each for each in Collective} | {"alltoall": Collective.ALL_TO_ALL}
    names = [name.strip().lower().removesuffix("_perf") for name in text.split(",")]
    if names == ["all"]:
        return tuple(Collective)
    for name in names:
        if name not in known:
            raise no_such(f"--collectives {name or text}", "collective", name, ["all", *known])
    return tuple(dict.fromkeys(known[name] for name in names))


def parse_tests(text: str) -> frozenset[GpuTests]:
    """Return the GPU tests that are named in `text`, the value of `--tests`.

    The name `collectives` adds no test to the result, because collectives are always tested.
    """
    known = {each.value: {each} for each in GpuTests} | {"collectives": set(), "all": ALL_TESTS}
    chosen: set[GpuTests] = set()
    for name in names_in(text):
        if name not in known:
            raise no_such(f"--tests {name}", "test", name, known)
        chosen |= known[name]
    return frozenset(chosen)


def names_in(text: str) -> list[str]:
    """Return the names in `text`, a list separated by commas, in lower case."""
    return [name.strip().lower() for name in text.split(",") if name.strip()]


def parse_words(name: str, text: str) -> tuple[str, ...]:
    """Return the words of `text`, split as a shell splits them.

    Raise UsageError if `text` can't be split. The error message names the option `name`.
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{name} {text[:40]!r}: {error}") from None


def slurm_words(text: str | None, on: str | None) -> tuple[str, ...]:
    """Return the words of `text`, the value of --slurm-args, or () if `text` is None.

    Raise UsageError if `on`, the value of --on, does not use Slurm.
    """
    if text and not str(on).startswith("slurm:"):
        raise UsageError("--slurm-args: only --on slurm:... calls Slurm")
    return parse_words("--slurm-args", text or "")


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the message sizes in bytes for a text such as `1K:1G`, `8:128M:4` or a single size.

    Each size is twice the previous size, unless a third number gives another factor. Raise UsageError if the text is
    invalid.
    """
    # K is 1024. nccl-tests uses the same format.
    found = SIZES.fullmatch(text.strip())
    if not found:
        raise UsageError(f"--sizes {text[:40]!r}: give SMALLEST:LARGEST[:FACTOR], such as 1K:1G or 8:128M:4")
    smallest, largest = (int(found[n]) * SCALE[found[n + 1].upper()] for n in (1, 3)) if found[3] else (0, 0)
    if not found[3]:
        smallest = largest = int(found[1]) * SCALE[found[2].upper()]
    factor = int(found[5] or 2)
    if not LEAST_BYTES <= smallest <= largest <= MOST_BYTES or factor < 2 or smallest % LEAST_BYTES:
        raise UsageError(
            f"--sizes {text[:40]}: from 8 bytes to 64G, the smaller one first and a multiple of 8, factor 2 and more"
        )
    return tuple(smallest * factor**k for k in range(64) if smallest * factor**k <= largest)


def burn_seconds(minutes: float | None, profile: Profile) -> float | None:
    """Return `minutes`, the value of --minutes, in seconds. Return None if `minutes` is None.

    Raise UsageError if `minutes` is given but `profile` has no burn-in.
    """
    if minutes is None:
        return None
    if not profile.effort.burn_s:
        raise UsageError(f"--minutes {minutes:g}: only --profile burn repeats its tests")
    if not 0 < minutes * 60 <= LONGEST_DEADLINE_S:
        raise UsageError(f"--minutes {minutes:g}: give minutes above 0 and up to {LONGEST_DEADLINE_S / 60:.0f}")
    return minutes * 60
