"""The options that several commands have, and what their values mean; one name means the same everywhere."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import Annotated

import typer

from preflight.check.option_kinds import ELSEWHERE, JUDGED, NODES, PRINTED, TRIED, choice, switch, timed, valued
from preflight.errors import UsageError
from preflight.model.collective import Collective
from preflight.model.parsing import parse_duration_s
from preflight.model.profile import ALL_TESTS, EFFORTS, GpuTests, Profile
from preflight.show.formats import ALSO

LONGEST_DEADLINE_S = 7 * 86400.0
SIZES = re.compile(r"(\d{1,11})([KMG]?)(?::(\d{1,11})([KMG]?)(?::(\d{1,3}))?)?", re.ASCII | re.IGNORECASE)
SCALE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
DEADLINES = ", ".join(f"{each.deadline_s / 60:g}m" for each in EFFORTS.values())
FEW = 10  # names that an error lists
LEAST_BYTES, MOST_BYTES = 8, 64 << 30


def _minutes(text: str) -> float:
    """Return minutes; a plain number is minutes, too."""
    try:
        return float(text)
    except ValueError:
        return parse_duration_s(text, "--minutes") / 60


Gpus = Annotated[str | None, valued("LIST", "GPUs as nvidia-smi numbers them: 6,7,8,9, 0-3, UUIDs.", group=TRIED)]
Nproc = Annotated[int | None, valued("N", "Ranks, for backends that need no GPU (default 2).", group=TRIED)]
Backend = Annotated[str | None, valued("NAME", "nccl, gloo, or NAME@MODULE that registers it.", group=TRIED)]
ProfileOption = Annotated[
    Profile,
    choice(f"How thorough: {', '.join(each.words for each in EFFORTS.values())}.", "--profile", group=TRIED),
]
Deadline = Annotated[
    float | None,
    timed(f"End by then with what is known: 90, 5m ({DEADLINES}).", "--deadline", group=TRIED),
]
ProbeDeadline = Annotated[
    float | None, timed("End by then with what is known: 30, 1m; exit 3 if cut short.", "--deadline", group=TRIED)
]
Minutes = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="How long --profile burn repeats its tests under load: 10, 1h.",
        parser=_minutes,
        rich_help_panel=TRIED,
    ),
]
StageLimit = Annotated[
    float | None, timed("Override every stage's limit before it counts as hung.", "--stage-limit", group=TRIED)
]
SharedDirectory = Annotated[
    str | None,
    valued(
        "DIR",
        "Try it: how fast it is. Several nodes: each writes here and reads another's file (node 0's word).",
        "--checkpoint-dir",
        group=TRIED,
    ),
]
Strict = Annotated[bool, switch("Warnings count as failures.", "--strict", group=JUDGED)]
Accept = Annotated[bool, switch("Answer for the node, not for the job: 0 accept, 1 reject.", "--accept", group=JUDGED)]
Shadow = Annotated[
    bool,
    switch("Answer as always in the report, and exit with 0.", "--shadow", group=JUDGED, envvar="PREFLIGHT_SHADOW"),
]
PolicyFile = Annotated[
    str | None, valued("FILE", "TOML: what is fatal, warned, waived or expected here.", "--policy", group=JUDGED)
]
BaselineFile = Annotated[
    str | None, valued("FILE", "Judge speeds by what `preflight baseline` learnt.", "--baseline", group=JUDGED)
]
HistoryFolder = Annotated[
    str | None,
    valued("DIR", "Earlier reports. The same GPU at fault in two of three runs rejects.", "--history", group=JUDGED),
]
EnvOut = Annotated[str, valued("PATH", "Where the settings to source go.", group=PRINTED)]
ReportOut = Annotated[str, valued("PATH", "Where the full report goes.", group=PRINTED)]
Also = Annotated[
    list[str] | None,
    valued(
        "FORMAT=FILE",
        f"Write the report in another form too: {', '.join(form.value for form in ALSO)}.",
        group=PRINTED,
    ),
]
Collectives = Annotated[
    str | None,
    valued("LIST", "Some of them: all_reduce,broadcast; nccl-tests' names too.", "--collectives", group=TRIED),
]
Sizes = Annotated[
    str | None, valued("MIN:MAX", "In place of the profile's: 1K:1G, 8:128M:4 (factor).", "--sizes", group=TRIED)
]
Tests = Annotated[
    str | None,
    valued(
        "LIST", "Beside the collectives: some of pairs, gpus, rails; or collectives for none.", "--tests", group=TRIED
    ),
]
Skip = Annotated[
    list[str] | None,
    valued("CHECK", "Leave this check out; may be repeated. With --accept: unknown.", "--skip", group=JUDGED),
]
Output = Annotated[str, valued("FILE", "Where it goes; - is stdout.", "--output", "-o", group=PRINTED)]
# What `preflight run` tells its check, so that the page says what happens next.
Starts = Annotated[str, typer.Option("--starts", hidden=True)]
StartsIfUnknown = Annotated[bool, typer.Option("--starts-if-unknown", hidden=True)]
Keep = Annotated[bool, switch("Keep the run's directory with all logs.", "--keep", group=PRINTED)]
Nnodes = Annotated[int | None, valued("N", "Nodes; by itself: what the scheduler says, or 1.", "--nnodes", group=NODES)]
NodeRank = Annotated[int | None, valued("R", "Which of them this is, from 0.", "--node-rank", group=NODES)]
Endpoint = Annotated[str | None, valued("HOST:PORT", "Where node 0 is reached.", "--rdzv-endpoint", group=NODES)]
RunId = Annotated[str | None, valued("ID", "What keeps two runs at one place apart.", "--rdzv-id", group=NODES)]
TopoOption = Annotated[
    str | None, valued("FILE", "Read a pasted `nvidia-smi topo -m` instead; - is stdin.", "--topo", group=ELSEWHERE)
]
MachineOption = Annotated[
    str | None, valued("FILE", "Read what `preflight capture` wrote; - is stdin.", "--machine", group=ELSEWHERE)
]
PlayedMachine = Annotated[
    str | None, valued("FILE", "Have a stand-in --backend play the machine of a capture.", "--machine", group=ELSEWHERE)
]
SysrootOption = Annotated[str | None, valued("DIR", "Read a recorded /sys and /proc tree instead.", group=ELSEWHERE)]


def parse_collectives(text: str) -> tuple[Collective, ...]:
    """Return the collectives of `all`, or of a list of names, which may be those of nccl-tests' programs."""
    known = {each.value: each for each in Collective} | {"alltoall": Collective.ALL_TO_ALL}
    names = [name.strip().lower().removesuffix("_perf") for name in text.split(",")]
    if names == ["all"]:
        return tuple(Collective)
    for name in names:
        if name not in known:
            raise no_such(f"--collectives {name or text}", "collective", name, ["all", *known])
    return tuple(dict.fromkeys(known[name] for name in names))


def parse_tests(text: str) -> frozenset[GpuTests]:
    """Return what is tested beside the collectives, which are always tried."""
    known = {each.value: {each} for each in GpuTests} | {"collectives": set(), "all": ALL_TESTS}
    chosen: set[GpuTests] = set()
    for name in names_in(text):
        if name not in known:
            raise no_such(f"--tests {name}", "test", name, known)
        chosen |= known[name]
    return frozenset(chosen)


def names_in(text: str) -> list[str]:
    """Return the names of a list with commas."""
    return [name.strip().lower() for name in text.split(",") if name.strip()]


def no_such(where: str, what: str, name: str, known: Collection[str]) -> UsageError:
    """Return the error that names what is spelled alike, or all of a few."""
    alike = ", ".join(difflib.get_close_matches(name.lower(), known, n=3))
    listed = f"there are {', '.join(known)}" if len(known) < FEW else "`preflight checks` lists them"
    return UsageError(f"{where}: there is no such {what}; {f'did you mean {alike}?' if alike else listed}")


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the bytes of `1K:1G`, each twice the one before, of `8:128M:4`, or of one size; K is 1024, as there."""
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
    """Return what --minutes asks for in seconds; UsageError where the profile repeats nothing."""
    if minutes is None:
        return None
    if not profile.effort.burn_s:
        raise UsageError(f"--minutes {minutes:g}: only --profile burn repeats its tests")
    if not 0 < minutes * 60 <= LONGEST_DEADLINE_S:
        raise UsageError(f"--minutes {minutes:g}: give minutes above 0 and up to {LONGEST_DEADLINE_S / 60:.0f}")
    return minutes * 60
