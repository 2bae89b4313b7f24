"""What was tried, as tables: the trials, what was left out, and the duels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from preflight.model.collective import Collective
from preflight.model.facts import Gap
from preflight.model.report import Report
from preflight.model.trial import CollectiveResult, Outcome, TrialResult
from preflight.model.units import percent_text, size_text, three_digits, time_text
from preflight.plan.duel import SMALLEST_THAT_DECIDES_BYTES, decision_results, is_sound
from preflight.render.search import is_step
from preflight.render.text import INDENT, Style, clean, heading, pairs, shorten, table, wrap

SHOWN = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
HEADERS = ("candidate", "outcome", "size", "GB/s", "time", "GB/s", "time", "data")
RECOMMENDED = "with the .env"  # what a search ended with, as the job will have it
FIXED_COLUMNS = 65  # what the other columns of the table take at most


def trials_section(report: Report, style: Style) -> list[str]:
    """Return the table, and below it why each trial failed that did; nothing where no trial ran."""
    if not report.trials:
        return []
    name_width = max(9, style.width - FIXED_COLUMNS)
    shown = _shown(report)
    rows = [row for trial in shown for row in _rows(trial, report.backend, name_width)]
    lines = table(HEADERS, rows, style.width, right=(2, 3, 4, 5, 6))
    lines = [_over_the_headers(lines[0]), *lines, *_failures(shown, style)]
    if any(map(_has_small_sizes_only, shown)):
        lines += wrap("GB/s is busbw; at these sizes it says little.", style.width, INDENT)
    return [*heading("Trials", style), *lines]


def _shown(report: Report) -> tuple[TrialResult, ...]:
    """Return the trials that stand for themselves, and of a search the one that earned the recommendation."""
    last = next((t for t in reversed(report.trials) if is_step(t) and is_sound(t) and t.env == report.advice.env), None)
    chosen = (replace(last, candidate=RECOMMENDED),) if last is not None else ()
    return (*(trial for trial in report.trials if not is_step(trial)), *chosen)


def left_out_section(report: Report, style: Style) -> list[str]:
    """Return what was not worth a trial, and why."""
    if not report.left_out:
        return []
    items = [(clean(each.candidate), clean(each.reason)) for each in report.left_out]
    return [*heading("Left out", style), *pairs(items, style.width)]


def comparisons_section(report: Report, style: Style) -> list[str]:
    """Return what the fresh, alternated measurements said."""
    if not report.comparisons:
        return []
    items = []
    for each in report.comparisons:
        bound = f"99 % bound {percent_text(each.lower_bound)}, worst size {percent_text(each.worst_gain)}"
        verdict = "clearly faster" if each.wins else "not clearly faster"
        gain = f"{verdict}: {percent_text(each.mean_gain)} ({bound}, {each.rounds} rounds)"
        unmeasured = "could not be measured to the end"
        items.append((clean(each.candidate), gain if each.mean_gain or each.lower_bound else unmeasured))
    return [*heading("Measured afresh against the default", style), *pairs(items, style.width)]


def _over_the_headers(headers: str) -> str:
    """Return the line that says which collective the columns below it are of."""
    line = ""
    end = 0
    for collective in SHOWN:
        found = headers.find("time", end)
        if found < 0:  # cut off by a narrow terminal
            break
        end = found + len("time")
        line = line.ljust(end - len(collective.value)) + collective.value
    return line


def _failures(trials: Sequence[TrialResult], style: Style) -> list[str]:
    """Return why trials failed, one entry for all that failed alike."""
    failed: dict[str, list[str]] = {}
    for trial in trials:
        if trial.problem and trial.outcome is not Outcome.OK:
            failed.setdefault(clean(trial.problem), []).append(shorten(clean(trial.candidate), style.width // 3))
    lines = []
    for problem, names in failed.items():
        lines += wrap(f"{', '.join(names)}: {problem}", style.width, INDENT, INDENT * 2)
    return lines


def _rows(trial: TrialResult, backend: str, name_width: int) -> list[list[str]]:
    name = shorten(clean(trial.candidate), name_width)
    deciding = decision_results(trial.results, cpu_path=backend == "gloo")
    chosen = [[each for each in deciding if each.collective is collective] for collective in SHOWN]
    count = max(map(len, chosen))
    if not count:
        return [[name, trial.outcome.value, "", "", "", "", "", ""]]
    rows = []
    for i in range(count):
        cells = [same[i] if i < len(same) else None for same in chosen]
        first = [name, trial.outcome.value] if i == 0 else ["", ""]
        rows.append([*first, *_measured(cells)])
    return rows


def _measured(cells: Sequence[CollectiveResult | None]) -> list[str]:
    there = [cell for cell in cells if cell is not None]
    row = [size_text(there[0].size_bytes)]
    for cell in cells:
        row += _speed(cell) if cell is not None else ["", ""]
    return [*row, "verified" if all(cell.verified for cell in there) else "WRONG"]


def _speed(cell: CollectiveResult) -> list[str]:
    if isinstance(cell.busbw_gb_s, Gap) or isinstance(cell.median_us, Gap):
        return ["?", "?"]  # somebody else was on the GPUs: the finding gpu-busy says who
    return [three_digits(cell.busbw_gb_s), time_text(cell.median_us)]


def _has_small_sizes_only(trial: TrialResult) -> bool:
    return bool(trial.results) and all(each.size_bytes < SMALLEST_THAT_DECIDES_BYTES for each in trial.results)
