"""The page that `preflight baseline` prints."""

from __future__ import annotations

from preflight.model.baseline import MOST_REPEATS
from preflight.model.fleet import Learnt, LearntBound
from preflight.model.gap import Gap
from preflight.model.units import capitalized, counted, size_text, three_digits
from preflight.show.document import (
    BLANK,
    Block,
    Column,
    Text,
    answer_line,
    figures,
    grouped,
    note,
    right,
    section,
    table,
)
from preflight.show.fleet import left_out
from preflight.show.screen import ALL, Page
from preflight.show.settings import quoted_path
from preflight.show.text import fact_text

HEADERS: tuple[str | Column, ...] = ("collective", "size", *figures("GB/s", "nodes", "repeats", "minimum", "5% loss"))
SHORT_HEADERS: tuple[str | Column, ...] = (
    "collective", "sizes", right("differ by", over="nodes", drop=1), right("of the median", over="minimum"),
    right("find a 5% loss", over="nodes to"),
)  # fmt: skip
EXPLAINED = (
    "GB/s: the median. nodes, repeats: the standard deviation between good nodes, and between repetitions on one "
    f"node. minimum: a slower node is rejected after {MOST_REPEATS} repetitions. 5% loss: a baseline of this many "
    "good nodes warns of 95 in 100 nodes that lost 5%."
)
MOST_NAMED = 8
NEVER = "A 5% loss of speed can't be found, however many nodes are measured: speeds of nodes or runs differ too much."


def baseline_page(learnt: Learnt, path: str) -> Page:
    """Return the page on a new baseline: its quality, its minimum speeds, and the file `path`.

    With -v, the page also has the values of each message size.
    """
    hardware = "; ".join(f"{name}: {value}" for name, value in learnt.baseline.hardware)
    word = ("WEAK BASELINE", "yellow") if _is_weak(learnt) else ("BASELINE", "green")
    answer = answer_line(*word, f"{len(learnt.baseline.hosts)} good nodes, {learnt.reports} reports")
    head: list[Block] = [answer, Text(hardware, 2, most_lines=2)]
    together = [each for each in learnt.bounds if not each.reference.size_bytes]
    left = grouped((each.reason, each.path) for each in learnt.left_out)
    groups: list[list[Block]] = [[Text(each, 2, 4, most_lines=3)] for each in _weaknesses(learnt)]
    groups += [
        [Text(f"{counted(len(paths), 'report')} skipped: {reason}", 2, 4, most_lines=2)]
        for reason, paths in left.items()
    ]
    speeds = table(SHORT_HEADERS, map(_short_row, together))
    groups += [[*([BLANK] if groups else []), speeds]]
    sizes = len(learnt.bounds) - len(together)
    bounds = f"set for {sizes} sizes and {len(together)} groups of sizes ({ALL})"
    foot = [("Next", _next(learnt, path)), ("Minimums", bounds), ("Written", quoted_path(path))]

    def whole() -> list[Block]:
        return [
            *head,
            *section("Minimum of each size", table(HEADERS, map(_row, learnt.bounds))),
            note(EXPLAINED),
            *map(note, _weaknesses(learnt)),
            *left_out("Left out", learnt.left_out, more=""),
            BLANK,
            Text(f"Next: {_next(learnt, path)}"),
        ]

    return Page(answer, head, groups, foot, whole)


def _is_weak(learnt: Learnt) -> bool:
    """Return whether the baseline would reject some of its own nodes, or would miss a loss of 5%."""
    return bool(learnt.own_rejected) or _is_loss_hidden(learnt)


def _is_loss_hidden(learnt: Learnt) -> bool:
    """Return whether a loss of 5% in some metric is smaller than the usual differences between good nodes."""
    return any(isinstance(each.finds_5_percent_from, Gap) for each in learnt.bounds)


def _weaknesses(learnt: Learnt) -> list[str]:
    """Return, as sentences, the reasons why the baseline's thresholds are weaker than possible."""
    spreads = [each.between_repetitions for each in learnt.baseline.references]
    reason = next((spread.reason for spread in spreads if isinstance(spread, Gap)), None)
    once = [] if reason is None else [f"{capitalized(reason)}; give several reports per node."]
    own = learnt.own_rejected
    named = (
        []
        if not own
        else [
            f"{len(own)} of these {counted(len(learnt.baseline.hosts), 'known-good node')} would be rejected by a "
            "baseline of the others: "
            f"{', '.join(own[:MOST_NAMED])}{', ...' if len(own) > MOST_NAMED else ''}. Two kinds of node?"
        ]
    )
    return [*named, *([NEVER] if _is_loss_hidden(learnt) else []), *once]


def _next(learnt: Learnt, path: str) -> str:
    if _is_weak(learnt):
        return "find the outliers with `preflight fleet`, then make the baseline again without them"
    return f"preflight check --accept --baseline {quoted_path(path)}"


def _row(bound: LearntBound) -> list[str]:
    each = bound.reference
    least = three_digits(each.busbw_gb_s * bound.floor) if each.size_bytes else f"{bound.floor:.1%}"
    return [
        each.collective.value,
        size_text(each.size_bytes) if each.size_bytes else f"all {each.group}",
        three_digits(each.busbw_gb_s) if each.size_bytes else "",
        f"{each.between_nodes:.1%}",
        fact_text(each.between_repetitions, "{:.1%}".format),
        least,
        fact_text(bound.finds_5_percent_from, "{} nodes".format, gap="never"),
    ]


def _short_row(bound: LearntBound) -> list[str]:
    collective, group, _, nodes, _, floor, loss = _row(bound)
    return [collective, group, nodes, floor, loss]
