"""What was measured below NCCL: the pairs as a matrix, the GPUs as rows, and what hardware counted."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from preflight.model.counters import CounterChange, CounterKind
from preflight.model.facts import Gap, NodeFacts
from preflight.model.gpu import P2pStatus
from preflight.model.gpu_test import CopyBy, Direction, Ending, GpuTest, PairTruth, UnderLoad
from preflight.model.report import Report
from preflight.model.units import three_digits
from preflight.render.text import INDENT, Style, clean, heading, table, wrap
from preflight.render.topology import matrix, numa_blocks

ENDS = {
    Ending.OK: "right",
    Ending.WRONG: "WRONG",
    Ending.HANG: "HANGS",
    Ending.CRASH: "CRASH",
    Ending.INCONCLUSIVE: "?",
    Ending.SKIPPED: "?",
}
WORST_FIRST = (Ending.WRONG, Ending.HANG, Ending.CRASH, Ending.INCONCLUSIVE, Ending.SKIPPED, Ending.OK)
LEGEND = (
    "driver says / data / GB/s: the driver's word on peer access; what arrived, by copy engine and by kernel, both "
    "ways; the slower direction of a copy of 64 MiB"
)
LEGEND_QUICK = (
    "driver says / data: the driver's word on peer access; what arrived, by copy engine and by kernel, both ways"
)
HEADERS = ("GPU", "fp32", "bf16", "h2d", "d2h", "MHz", "°C", "W", "data")


def hardware_section(report: Report, style: Style) -> list[str]:
    """Return the matrix of the pairs, the table of the GPUs and the counters that grew; nothing where none was run."""
    lines = [] if isinstance(report.p2p, Gap) or not report.nodes else _pairs(report.p2p, report.nodes[0], style)
    lines += [] if isinstance(report.gpu_tests, Gap) else _gpus(report.gpu_tests, style)
    lines += [] if isinstance(report.counters, Gap) else _counters(report.counters, style)
    return lines


def _pairs(pairs: Sequence[PairTruth], node: NodeFacts, style: Style) -> list[str]:
    if not pairs:
        return []
    cells: dict[tuple[str, str], str] = {}
    for a, b in dict.fromkeys((pair.a, pair.b) for pair in pairs):
        cell = pair_cell([pair for pair in pairs if (pair.a, pair.b) == (a, b)])
        cells[f"GPU{a}", f"GPU{b}"] = cells[f"GPU{b}", f"GPU{a}"] = cell
    blocks = numa_blocks(node, sorted({gpu for pair in pairs for gpu in (pair.a, pair.b)}))
    lines = [*heading("Copies between the GPUs", style), *matrix(blocks, blocks, cells, {}, style)]
    legend = LEGEND if any(pair.speeds for pair in pairs) else LEGEND_QUICK
    lines += wrap(legend, style.width, INDENT)
    told: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.problem:
            load = f" (under load {pair.repetition})" if pair.repetition else ""
            told.setdefault(clean(pair.problem), []).append(f"{pair.a}-{pair.b}{load}")
    for problem, named in told.items():
        lines += wrap(f"{', '.join(named)}: {problem}", style.width, INDENT, INDENT * 2)
    return lines


def pair_cell(tests: Sequence[PairTruth]) -> str:
    """Return `yes/right/24.1` for all tests of one pair."""
    driver = tests[0].driver
    says = "?" if isinstance(driver, Gap) else "yes" if driver is P2pStatus.OK else "no"
    end = min((test.end for test in tests), key=WORST_FIRST.index)
    return "/".join([says, ENDS[end], *slowest_gb_s(tests)])


def slowest_gb_s(tests: Sequence[PairTruth]) -> list[str]:
    """Return the slower direction's speed by copy engine, nothing where no speed was measured."""
    one_way = [
        speed.gb_s
        for test in tests
        for speed in test.speeds
        if speed.by is CopyBy.COPY_ENGINE and speed.direction is not Direction.BOTH
    ]
    known = [speed for speed in one_way if not isinstance(speed, Gap)]
    return [three_digits(min(known))] if known else ["?"] if one_way else []


def _gpus(tests: Sequence[GpuTest], style: Style) -> list[str]:
    if not tests:
        return []
    rows = [_row(gpu, [test for test in tests if test.gpu == gpu]) for gpu in dict.fromkeys(t.gpu for t in tests)]
    lines = [*heading("Each GPU by itself", style), *table(HEADERS, rows, style.width, right=range(1, 8))]
    repeated = max(test.repetition for test in tests)
    load = f"; medians of {repeated + 1} rounds" if repeated else ""
    lines += wrap(
        f"fp32, bf16: TFLOP/s of matrix products; h2d, d2h: GB/s with pinned memory near the GPU{load}.",
        style.width,
        INDENT,
    )
    for test in tests:
        if test.problem:
            lines += wrap(clean(f"GPU {test.gpu}: {test.problem}"), style.width, INDENT, INDENT * 2)
    return lines


def _row(gpu: int, tests: Sequence[GpuTest]) -> list[str]:
    speeds = [
        _median([gemm.tflop_s for test in tests for gemm in test.gemms if gemm.dtype == dtype])
        for dtype in ("float32", "bfloat16")
    ]
    speeds += [
        _median([c.gb_s for test in tests for c in test.copies if c.direction == way and c.is_near is not False])
        for way in ("h2d", "d2h")
    ]
    loads = [test.computing for test in tests if isinstance(test.computing, UnderLoad)]
    clock = _median([load.sm_mhz_median for load in loads])
    heat = _most([load.temperature_c_max for load in loads])
    power = _most([load.power_w_max for load in loads])
    end = min((test.end for test in tests), key=WORST_FIRST.index)
    return [str(gpu), *speeds, clock, heat, power, ENDS[end]]


def _median(values: Sequence[float | Gap]) -> str:
    known = [value for value in values if not isinstance(value, Gap)]
    return three_digits(median(known)) if known else "?"


def _most(values: Sequence[float | Gap]) -> str:
    known = [value for value in values if not isinstance(value, Gap)]
    return f"{max(known):.0f}" if known else "?"


def _counters(counters: Sequence[CounterChange], style: Style) -> list[str]:
    """Return the error counters that grew; that none did is said, with how many could not be read."""
    errors = [each for each in counters if each.kind is not CounterKind.TRAFFIC]
    if not errors:
        return []
    grown = [each for each in errors if isinstance(each.grown, int) and each.grown > 0]
    lines = heading("New errors that hardware counted", style) if grown else [""]
    for each in grown:
        lines += wrap(clean(f"{each.subject} {each.name.replace('_', ' ')}: {each.grown} new"), style.width, INDENT)
    unread = sum(isinstance(each.grown, Gap) for each in errors)
    quiet = len(errors) - len(grown) - unread
    told = f"Error counters: {quiet} did not move during the run, {unread} could not be read."
    return [*lines, *wrap(told, style.width, INDENT if grown else "")]
