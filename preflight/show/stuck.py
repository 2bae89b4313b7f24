"""The page of `preflight stuck`: the ranks that block the job, the reason, and the fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from preflight.model.stuck import Culprit, JobRow, KnownHang, RankPlace, StuckReport, StuckVerdict
from preflight.model.stuck_evidence import NodeEvidence, RankProcess
from preflight.model.units import duration_text
from preflight.show.document import BLANK, Block, Code, Column, Table, Text, answer_line, bullet, right, section
from preflight.show.screen import ALL, Page
from preflight.show.text import clean, ranges

HEAD = {
    StuckVerdict.STUCK: ("STUCK", "red"),
    StuckVerdict.NOT_STUCK: ("NOT STUCK", "green"),
    StuckVerdict.UNKNOWN: ("COULD NOT TELL", "yellow"),
}
COLUMNS = (
    right("rank"), Column("host", limit=24, drop=2), right("pid"), Column("activity"),
    Column("call", limit=lambda width: width // 3), Column("line of the job", limit=lambda width: width // 2),
    right("rests for", drop=1),
)  # fmt: skip
JOB_COLUMNS = (
    right("pid"), right("ranks"), Column("command", limit=lambda width: width // 2 - 8),
    Column("folder", limit=lambda width: width // 3), right("since", drop=1),
)  # fmt: skip
MOST_ROWS, MOST_CULPRITS = 24, 4
MOST_ACTIVITIES = 3
MOST_FRAMES = 16  # of a stack
MOST_TITLE = 66  # characters of a command line
AGAIN = "rerun in a minute, with --watch as long as a step takes, and on all nodes of the job"
WORKS = "wait, then rerun in a minute; -v shows where every rank is"
ELSE = {
    StuckVerdict.NOT_STUCK: "none; if the job still seems to hang, repeat this command in a minute",
    StuckVerdict.UNKNOWN: "run `preflight stuck PID` as the job's user or as root",
    StuckVerdict.STUCK: "-v shows where every rank is",
}


def stuck_page(report: StuckReport, written: Sequence[str] = ()) -> Page:
    """Return the page of `preflight stuck`.

    `written` lists the output files that the page names.
    """
    word, tone = HEAD[report.verdict]
    answer = answer_line(word, tone, report.summary)
    table = _rank_table(report.places)
    groups: list[list[Block]] = [[_short(_known(each), 3)] for each in report.known_bugs[:1]]
    for culprit in report.culprits:
        groups += [[_short(bullet(each))] for each in culprit.evidence]
        first = culprit is report.culprits[0]  # its first step is what comes next
        groups += [_short_step(each) for each in _steps(culprit)[first:]]
    groups += [[BLANK, table]] if report.places else []
    groups += [[_short(Text(each, 2, 4, label="not seen: "))] for each in report.not_seen]
    groups += [[_short(bullet(each))] for each in report.hints]
    foot = [("Next", _next(report)), ("Ranks", f"{_ranks(report)} ({ALL})")]
    foot += [("Written", ", ".join(written))] if written else []

    def whole() -> list[Block]:
        is_one_of_several = len(report.culprits) > 1
        return [
            Text(word, tone=tone),
            Text(report.summary),
            *(block for each in report.culprits[:MOST_CULPRITS] for block in _culprit(each, is_one_of_several)),
            *section("Known bugs of what runs here", *(part for each in report.known_bugs for part in _whole(each))),
            *section("Every rank", table),
            *section("Stacks, innermost call first", *_stacks(report)),
            *section("Last lines", *_last_lines(report)),
            *section("Hints", *map(bullet, report.hints)),
            *section("Not seen", *map(bullet, report.not_seen)),
            BLANK,
            *_footer(report.nodes),
        ]

    return Page(answer, [_short(answer, 4)], groups, foot, whole)


def _known(bug: KnownHang) -> Text:
    """Return the advice on a known bug, and the certainty that the bug is the cause."""
    return Text(f"{bug.do}. How sure: {bug.how_sure} ({bug.address})", 2, 4, label="Known bug: ")


def _whole(bug: KnownHang) -> list[Block]:
    return [bullet(bug.sentence), _known(bug)]


def jobs_page(rows: Sequence[JobRow]) -> Page:
    """Return the page that lists the jobs of a node as a table."""
    answer = answer_line(f"{len(rows)} JOBS", "yellow", "run here; name the one that hangs")
    cells = [
        (str(row.pid), str(row.ranks), row.command, row.folder, duration_text(row.since_s) if row.since_s else "?")
        for row in rows
    ]
    foot = [("Next", f"`preflight stuck {rows[0].pid}` looks at the first; `preflight stuck --all` looks at all")]
    return Page(answer, [_short(answer)], [[Table(JOB_COLUMNS, tuple(cells[:MOST_ROWS]))]], foot, list)


def job_title(row: JobRow, *, is_first: bool, is_quiet: bool) -> str:
    """Return the title that is printed above the page of a job.

    If `is_quiet` is true, the title is the start of the job's line.
    """
    # If `is_first` is False, an empty line comes first.
    if is_quiet:
        return f"{row.pid}: "
    title = f"Job {row.pid}: {clean(row.command)[:MOST_TITLE]}\n"
    return title if is_first else f"\n{title}"


def _culprit(culprit: Culprit, is_one_of_several: bool) -> list[Block]:
    blocks: list[Block] = []
    steps: list[Block] = [Text(f"{culprit.what}.", 2)] if is_one_of_several else []
    number = 0
    for step in culprit.steps:
        if step.startswith("    "):
            steps.append(Code((step.strip(),), 7))
            continue
        number += 1
        steps.append(Text(step, 2, 5, label=f"{number}. "))
    blocks += section(f"What to do ({culprit.reason.value})", *steps)
    return [*blocks, *section("Evidence", *map(bullet, culprit.evidence))]


def _rank_table(places: Sequence[RankPlace]) -> Table:
    """Return a table with a row for each rank. Ranks that do the same share a row."""
    alike: dict[tuple[str, ...], list[RankPlace]] = {}
    for place in places:
        key = (place.host, place.activity.value, place.doing, place.at, place.within)
        alike.setdefault(key, []).append(place)
    rows = [_row(members) for members in sorted(alike.values(), key=lambda m: (len(m), _number(m[0])))]
    return Table(COLUMNS, tuple(rows[:MOST_ROWS])).known()


def _number(place: RankPlace) -> int:
    return place.rank if isinstance(place.rank, int) else 1 << 30


def _row(members: Sequence[RankPlace]) -> tuple[str, ...]:
    first = members[0]
    numbers = [place.rank for place in members if isinstance(place.rank, int)]
    name = f"{first.name}, ..." if first.name and len(members) > 1 else first.name
    rank = name or (ranges(numbers) if numbers else "?")
    times = [place.for_s for place in members if isinstance(place.for_s, float) and place.stands]
    rests = f"{min(times):.0f} s" if times else "?"
    within = f" in {first.within}" if first.within else ""
    pids = str(first.pid) if len(members) == 1 else f"{first.pid}, ..."
    activity = first.activity.value.replace("_", " ") + within
    return (
        rank, first.host, pids if first.pid else "?", activity, first.doing or "?", first.at or "?", rests,
    )  # fmt: skip


def _holding_up(report: StuckReport) -> Iterator[tuple[NodeEvidence, RankProcess]]:
    """Yield the ranks that hold up the job."""
    pids = {(culprit.host, pid) for culprit in report.culprits for pid in culprit.pids}
    for node in report.nodes:
        yield from ((node, rank) for rank in node.ranks if (node.host, rank.process.pid) in pids)


def _last_lines(report: StuckReport) -> list[Block]:
    """Return the last output lines of the ranks that hold up the job."""
    blocks: list[Block] = []
    for _, rank in _holding_up(report):
        if not hasattr(rank.output, "reason"):
            blocks += [Text(f"{rank.output.path}, silent for {rank.output.silent_s:.0f} s:", 2)]
            blocks += [Text(line, 4, label="| ", limit=lambda width: width - 8) for line in rank.output.lines]
    return blocks[:8]


def _stacks(report: StuckReport) -> list[Block]:
    """Return the Python stacks of the main threads in the ranks that hold up the job.

    Equal stacks are shown once.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for node, rank in _holding_up(report):
        stack = rank.process.main_stack
        if stack is not None and stack.python_frames:
            calls = tuple(str(frame) for frame in stack.python_frames[:MOST_FRAMES])
            alike.setdefault(calls, []).append(f"pid {rank.process.pid} on {node.host}")
    blocks: list[Block] = []
    for calls, names in list(alike.items())[:MOST_CULPRITS]:
        more = f" and {len(names) - 1} more" if names[1:] else ""
        blocks += [Text(f"{names[0]}{more}:", 2), *(Text(each, 4) for each in calls)]
    return blocks


def _footer(nodes: Sequence[NodeEvidence]) -> list[Block]:
    ranks = sum(len(node.ranks) for node in nodes)
    where = ", ".join(node.host for node in nodes[:4]) + (f" and {len(nodes) - 4} more" if nodes[4:] else "")
    if not nodes:
        return [Text("Name the job with --pid PID. Run this command as root, or as the job's user.")]
    job = nodes[0].job
    return [Text(f"preflight watched {ranks} ranks on {where} ({job}) for {max(n.watched_s for n in nodes):.0f} s.")]


def _short(text: Text, most_lines: int = 2) -> Text:
    return Text(text.text, text.indent, text.hang, text.label, label_tone=text.label_tone, most_lines=most_lines)


def _steps(culprit: Culprit) -> list[list[str]]:
    """Return each step with the commands below it."""
    steps: list[list[str]] = []
    for each in culprit.steps:
        if each.startswith("    ") and steps:
            steps[-1].append(each.strip())
        else:
            steps.append([each])
    return steps


def _short_step(step: list[str]) -> list[Block]:
    return [_short(Text(step[0], 2, 4, label="> "), 3), *([Code(tuple(step[1:]), 4)] if step[1:] else [])]


def _next(report: StuckReport) -> str:
    steps = [step for culprit in report.culprits for step in _steps(culprit)]
    if not steps:
        if any(place.works for place in report.places):
            return WORKS
        return AGAIN if report.verdict is StuckVerdict.UNKNOWN and report.places else ELSE[report.verdict]
    if report.known_bugs and report.known_bugs[0].is_shown:
        return f"end the job; {report.known_bugs[0].do}"
    sentence, *commands = steps[0]
    return f"{sentence.rstrip('.:')}: {commands[0]}" if commands else sentence


def _ranks(report: StuckReport) -> str:
    counts = Counter(place.doing or place.activity.value.replace("_", " ") for place in report.places)
    shown = [f"{count} in {name}" for name, count in counts.most_common(MOST_ACTIVITIES)]
    more = len(counts) - len(shown)
    hosts = len(report.nodes)
    seconds = max((node.watched_s for node in report.nodes), default=0.0)
    if not shown:
        return "none"
    where = f"on {hosts} node{'' if hosts == 1 else 's'}, watched for {seconds:.0f} s"
    return f"{len(report.places)} {where}: {', '.join(shown)}{f' and {more} more' if more > 0 else ''}"
