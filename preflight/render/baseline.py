"""What a baseline holds, as the page of `preflight baseline`."""

from __future__ import annotations

from preflight.model.baseline import MOST_REPEATS
from preflight.model.fleet import Bound, Learnt
from preflight.model.gap import Gap
from preflight.model.units import size_text, three_digits
from preflight.render.console_writer import page
from preflight.render.document import BLANK, Block, Column, Text, figures, note, section, table
from preflight.render.fleet import left_out
from preflight.render.text import Style, fact_text

HEADERS: tuple[str | Column, ...] = ("collective", "size", *figures("GB/s", "nodes", "repeats", "floor", "5 % loss"))
EXPLAINED = (
    "GB/s: the median. nodes, repeats: how far good nodes differ, and repetitions on one node (standard deviations). "
    f"floor: below it a node is rejected, after {MOST_REPEATS} repetitions. 5 % loss: learnt from so many good nodes, "
    "95 of 100 nodes that lost 5 % are found."
)
NEVER = "never: nodes or repetitions differ by more than a 5 % loss shows in, however many good nodes are learnt from."


def render_baseline(learnt: Learnt, style: Style, path: str) -> str:
    """Return per group and size the median, both spreads, the floor, and from how many nodes 5 % would be found."""
    baseline = learnt.baseline
    spreads = [each.between_repetitions for each in baseline.references]
    reason = next((spread.reason for spread in spreads if isinstance(spread, Gap)), None)
    is_never = any(isinstance(each.finds_5_percent_from, Gap) for each in learnt.bounds)
    counts = f"{len(baseline.hosts)} good nodes, {learnt.reports} reports"
    blocks: list[Block] = [
        Text(counts, hang=2, label="BASELINE  ", label_tone="green"),
        note("; ".join(f"{name}: {value}" for name, value in baseline.hardware)),
        *section("Bounds", table(HEADERS, map(_row, learnt.bounds))),
        note(EXPLAINED),
        *([note(NEVER)] if is_never else []),
        *([note(f"?: {reason}; give several reports of each node.")] if reason is not None else []),
        *left_out("Left out", learnt.left_out, more=""),
        BLANK,
        Text(f"Next: preflight check --accept --baseline {path}"),
    ]
    return page(blocks, style)


def _row(bound: Bound) -> list[str]:
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
