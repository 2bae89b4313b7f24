"""The page of `preflight bench`: the speed of each collective, also as a table in the format of nccl-tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.model.collective import Collective
from preflight.model.facts import Gap
from preflight.model.finding import Severity
from preflight.model.report import Report, Verdict
from preflight.model.trial import DEFAULT, FAILED, CollectiveResult, TrialResult
from preflight.model.units import size_text, three_digits, time_text
from preflight.show.check_page import SIGNALLED, STOPPED, UNSEEN, check_page
from preflight.show.checks_and_findings import counts_text
from preflight.show.document import BLANK, Block, Code, Column, Text, note, right, table
from preflight.show.screen import AGAIN, ALL, Page, short
from preflight.show.text import UNKNOWN, fact_text, shorten
from preflight.show.verdict import by_weight, verdict_section

LARGE_BYTES = 1 << 20  # from here on the bandwidth says more than the time
MOST_SIZES = 4
FASTER = "none; `preflight check --profile standard` tests whether other settings are faster"
CURE = "run `preflight check` with the same options to search for a workaround"
KEEP = "nothing (--json FILE keeps every value; -v prints nccl-tests' table)"
ELEMENT_BYTES = 4  # trials use float32
COLUMNS = (12, 12, 8, 8, 6, 9, 8, 8, 7)
NAMES = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong")
UNITS = ("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "")


def bench_page(report: Report, written: str = "") -> Page:
    """Return the page of `preflight bench`: the failures, and the speed of each collective at a few sizes.

    `written` is the name of the file that was written, or "".
    """
    # With -v, the page also has a table in the format of nccl-tests.
    trial = _default(report)
    findings = by_weight(report)
    failed = [each for each in findings if each.severity is Severity.FAIL]
    groups = [short(each, report.headline) for each in failed]
    others = [short(each, report.headline) for each in findings if each not in failed]
    if trial is not None and trial.results:
        groups.append(_speeds(trial, report))
        others[:1] = [[BLANK, *each] for each in others[:1]]
    groups += others
    checks = f"{counts_text(report.checks, report.findings)} ({ALL})"
    foot = [("Next", _next(report, trial)), ("Checks", checks), ("Written", written or KEEP)]
    checked = check_page(report)
    head = verdict_section(report, most_lines=3)
    return Page(checked.answer, head, groups, foot, lambda: _whole(report, trial), checked.is_one_line)


def _default(report: Report) -> TrialResult | None:
    return next((each for each in report.trials if each.candidate == DEFAULT), None)


def _speeds(trial: TrialResult, report: Report) -> list[Block]:
    """Return a table with a row for each collective: the measured speed at a few sizes, and the expected speed."""
    sizes = sorted({each.size_bytes for each in trial.results})
    large = [size for size in sizes if size >= LARGE_BYTES]
    some = (
        [*sizes[:1], *large[:1], large[len(large) // 2], large[-1]] if large else [*sizes[: MOST_SIZES - 1], sizes[-1]]
    )
    shown = sorted(set(some))
    headers: list[str | Column] = [
        "collective",
        *(right(size_text(size), drop=2 if size not in (shown[0], shown[-1]) else 0) for size in shown),
    ]
    rows = list(_speed_rows(trial, report, shown))
    what = table([*headers, right("links give", drop=1), "data"], rows)
    if not any(row[-2] for row in rows):
        what = what.only([*range(len(headers)), len(headers) + 1])
    units = (
        f"{size_text(LARGE_BYTES)} and larger: busbw in GB/s. Smaller: median time." if large else "The median time."
    )
    return [what, note(units)]


def _speed_rows(trial: TrialResult, report: Report, sizes: Sequence[int]) -> Iterator[list[str]]:
    expected = () if isinstance(report.expected, Gap) else report.expected
    for collective in Collective:
        found = {each.size_bytes: each for each in trial.results if each.collective is collective}
        if found:
            spans = [each for each in expected if each.what == collective.value and each.size_bytes == sizes[-1]]
            links = [f"{three_digits(each.low_gb_s)} to {three_digits(each.high_gb_s)}" for each in spans]
            data = "verified" if all(each.verified for each in found.values()) else "WRONG"
            cells = [_speed(found[size]) if size in found else "" for size in sizes]
            yield [collective.value, *cells, *(links or [""])[:1], data]


def _speed(result: CollectiveResult) -> str:
    if result.size_bytes < LARGE_BYTES:
        return fact_text(result.median_us, time_text)
    return fact_text(result.shown_gb_s, three_digits, gap=UNKNOWN)


def _next(report: Report, trial: TrialResult | None) -> str:
    """Return the next step for the user, with the command if there is one."""
    if report.exit_code > SIGNALLED:
        return STOPPED
    if report.verdict is Verdict.UNKNOWN:
        return UNSEEN
    if report.verdict is Verdict.NOT_READY:
        return CURE if trial is not None and trial.outcome in FAILED else AGAIN
    return FASTER


def _whole(report: Report, trial: TrialResult | None) -> list[Block]:
    """Return the table of each collective in the trial with the default settings.

    The last line of nccl-tests, the average busbw over all sizes, is left out. This average mixes messages of 8 B with
    messages of gigabytes. The average changes with the requested sizes and says nothing about the machine.
    """
    ran = f"preflight {report.preflight_version} bench: {report.world_size} ranks, backend {report.backend}"
    texts = [
        f"{ran}, profile {report.profile}",
        "time: median over the repetitions of the slowest rank; all_reduce and broadcast in place; all data checked",
    ]
    if report.backend == "gloo":
        texts.insert(0, "CPU path: gloo; GPUs and NCCL were not tested.")
    if report.simulated:
        texts.insert(0, f"SIMULATED: backend {report.backend}; nothing here is about a machine.")
    if trial is None:
        texts.append("no trial ran")
    elif trial.problem:
        texts.append(f"{trial.outcome.value}: {trial.problem}")
    blocks: list[Block] = [Text(each, label="# ") for each in texts]
    return blocks if trial is None else [*blocks, Code(tuple(_lines(trial, report.world_size)), 0, is_wrapped=False)]


def _lines(trial: TrialResult, world_size: int) -> Iterator[str]:
    for collective in Collective:
        results = [each for each in trial.results if each.collective is collective]
        if results:
            yield from ("#", f"# {collective.value}", _row(NAMES, "#"), _row(UNITS, "#"))
            yield from (_line(each, world_size) for each in results)
    wrong = sum(each.wrong_elements for each in trial.results)
    all_right = wrong == 0 and all(each.verified for each in trial.results)
    said = f"{wrong} {'OK' if all_right else 'FAILED'}" if trial.results else "not checked, nothing was timed"
    yield from ("#", f"# Out of bounds values : {said}")


def _line(result: CollectiveResult, world_size: int) -> str:
    reduces = result.collective in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
    # nccl-tests counts what one rank sends (all_gather) or receives (reduce_scatter), though the size is the total.
    per_rank = result.collective in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL)
    count = result.size_bytes // ELEMENT_BYTES // (max(1, world_size) if per_rank else 1)
    root = "0" if result.collective is Collective.BROADCAST else "-1"
    rates = [fact_text(rate, "{:.2f}".format, gap="N/A") for rate in (result.algbw_gb_s, result.busbw_gb_s)]
    time = fact_text(result.median_us, lambda us: f"{us:.1f}" if us < 1e6 else f"{us:.0f}", gap="N/A")
    wrong = str(result.wrong_elements) if result.verified or result.wrong_elements else "N/A"
    cells = (str(result.size_bytes), str(count), "float", "sum" if reduces else "none", root, time, *rates, wrong)
    return _row(cells, "")


def _row(cells: tuple[str, ...], start: str) -> str:
    text = "".join(shorten(cell, width).rjust(width) for cell, width in zip(cells, COLUMNS, strict=True))
    return start + text[len(start) :]
