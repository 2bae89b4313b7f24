"""The section on the measurements without NCCL: GPU pairs, single GPUs and hardware counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from preflight.model.counters import CounterChange, CounterKind
from preflight.model.facts import Gap, NodeFacts
from preflight.model.gpu import P2pStatus
from preflight.model.gpu_test import CopyBy, Direction, Ending, GpuTest, PairTruth, UnderLoad
from preflight.model.report import Report
from preflight.model.units import three_digits
from preflight.search.gpus.gpu_tests import WORST_FIRST
from preflight.show.document import BLANK, Block, Column, Heading, Matrix, Text, figures, grouped, item, note, table
from preflight.show.text import UNKNOWN
from preflight.show.topology import numa_blocks

ENDS = {
    Ending.OK: "right",
    Ending.WRONG: "WRONG",
    Ending.HANG: "HANGS",
    Ending.CRASH: "CRASH",
    Ending.INCONCLUSIVE: UNKNOWN,
    Ending.SKIPPED: UNKNOWN,
}
LEGEND = (
    "driver says / data{}: whether the driver allows peer access; whether copies by copy engine and kernel were "
    "right, in both directions{}"
)
LEGEND_OF_SPEEDS = (" / GB/s", "; the slower direction of a copy of 64 MiB")
HEADERS: tuple[str | Column, ...] = ("GPU", *figures("fp32", "bf16", "h2d", "d2h", "MHz", "°C", "W"), "data")


def hardware_section(report: Report) -> list[Block]:
    """Return the section on the hardware tests: the GPU pairs, the GPUs, and the counters that grew.

    The result is empty if no test ran.
    """
    blocks = [] if isinstance(report.p2p, Gap) or not report.nodes else _pairs(report.p2p, report.nodes[0])
    blocks += [] if isinstance(report.gpu_tests, Gap) else _gpus(report.gpu_tests)
    return blocks + ([] if isinstance(report.counters, Gap) else _counters(report.counters))


def _pairs(pairs: Sequence[PairTruth], node: NodeFacts) -> list[Block]:
    if not pairs:
        return []
    cells: dict[tuple[str, str], str] = {}
    for a, b in dict.fromkeys((pair.a, pair.b) for pair in pairs):
        cell = pair_cell([pair for pair in pairs if (pair.a, pair.b) == (a, b)])
        cells[f"GPU{a}", f"GPU{b}"] = cells[f"GPU{b}", f"GPU{a}"] = cell
    gpus = numa_blocks(node, sorted({gpu for pair in pairs for gpu in (pair.a, pair.b)}))
    legend = LEGEND.format(*(LEGEND_OF_SPEEDS if any(pair.speeds for pair in pairs) else ("", "")))
    problems = grouped((pair.problem, _name(pair)) for pair in pairs if pair.problem)
    below = [item(f"{', '.join(names)}: {problem}") for problem, names in problems.items()]
    return [Heading("Copies between the GPUs"), Matrix(gpus, gpus, cells, {}), note(legend), *below]


def _name(pair: PairTruth) -> str:
    return f"{pair.a}-{pair.b}" + (f" (under load {pair.repetition})" if pair.repetition else "")


def pair_cell(tests: Sequence[PairTruth]) -> str:
    """Return the matrix cell for all tests of one GPU pair, such as `yes/right/24.1`.

    The cell has the driver's answer on peer access, the result of the copies, and a speed in GB/s.
    """
    driver = tests[0].driver
    says = UNKNOWN if isinstance(driver, Gap) else "yes" if driver is P2pStatus.OK else "no"
    one_way = [
        speed.gb_s
        for test in tests
        for speed in test.speeds
        if speed.by is CopyBy.COPY_ENGINE and speed.direction is not Direction.BOTH
    ]
    slowest = [_of(one_way, min, three_digits)] if one_way else []
    return "/".join([says, _worst(tests), *slowest])


def _worst(tests: Sequence[PairTruth | GpuTest]) -> str:
    return ENDS[min((test.end for test in tests), key=WORST_FIRST.index)]


def _of(values: Iterable[float | Gap], take: Callable[[list[float]], float], show: Callable[[float], str]) -> str:
    """Return one statistic of the known values as text, or `?` if no value is known.

    `take` computes the statistic, and `show` makes the text.
    """
    known = [value for value in values if not isinstance(value, Gap)]
    return show(take(known)) if known else UNKNOWN


def _gpus(tests: Sequence[GpuTest]) -> list[Block]:
    if not tests:
        return []
    rows = [_row(gpu, [test for test in tests if test.gpu == gpu]) for gpu in dict.fromkeys(t.gpu for t in tests)]
    repeated = max(test.repetition for test in tests)
    load = f"; medians of {repeated + 1} rounds" if repeated else ""
    legend = f"fp32, bf16: TFLOP/s of GEMMs; h2d, d2h: GB/s with pinned memory near the GPU{load}."
    problems = [item(f"GPU {test.gpu}: {test.problem}") for test in tests if test.problem]
    return [Heading("Each GPU alone"), table(HEADERS, rows), note(legend), *problems]


def _row(gpu: int, tests: Sequence[GpuTest]) -> list[str]:
    gemms = [gemm for test in tests for gemm in test.gemms]
    copies = [copy for test in tests for copy in test.copies if copy.is_near is not False]
    loads = [test.computing for test in tests if isinstance(test.computing, UnderLoad)]
    medians = [
        *([gemm.tflop_s for gemm in gemms if gemm.dtype == dtype] for dtype in ("float32", "bfloat16")),
        *([copy.gb_s for copy in copies if copy.direction == way] for way in ("h2d", "d2h")),
        [load.sm_mhz_median for load in loads],
    ]
    highest = ([load.temperature_c_max for load in loads], [load.power_w_max for load in loads])
    figures = [_of(values, median, three_digits) for values in medians]
    figures += [_of(values, max, "{:.0f}".format) for values in highest]
    return [str(gpu), *figures, _worst(tests)]


def _counters(counters: Sequence[CounterChange]) -> list[Block]:
    """Return the error counters that grew, and how many other counters did not grow or could not be read."""
    errors = [each for each in counters if each.kind is not CounterKind.TRAFFIC]
    if not errors:
        return []
    grown = [each for each in errors if isinstance(each.grown, int) and each.grown > 0]
    unread = sum(isinstance(each.grown, Gap) for each in errors)
    quiet = len(errors) - len(grown) - unread
    summary = f"Error counters: {quiet} did not change during the run, {unread} could not be read."
    if not grown:
        return [BLANK, Text(summary)]
    lines = [note(f"{each.subject} {each.name.replace('_', ' ')}: {each.grown} new") for each in grown]
    return [Heading("New errors that hardware counted"), *lines, note(summary)]
