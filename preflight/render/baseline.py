"""What a baseline holds, as the page of `preflight baseline`."""

from __future__ import annotations

from preflight.model.baseline import MOST_REPEATS
from preflight.model.fleet import Bound, Learnt
from preflight.model.gap import Gap
from preflight.model.units import size_text, three_digits
from preflight.render.text import Style, clean, finish, heading, paint, table, wrap

MOST_LINES = 20
INDENT = "  "
HEADERS = ("collective", "size", "GB/s", "nodes", "repeats", "floor", "5 % loss")
EXPLAINED = (
    "GB/s: the median. nodes, repeats: how far good nodes differ, and repetitions on one node (standard deviations). "
    f"floor: below it a node is rejected, after {MOST_REPEATS} repetitions. 5 % loss: learnt from so many good nodes, "
    "95 of 100 nodes that lost 5 % are found."
)
NEVER = "never: nodes or repetitions differ by more than a 5 % loss shows in, however many good nodes are learnt from."


def render_baseline(learnt: Learnt, style: Style, path: str) -> str:
    """Return per group and size the median, both spreads, the floor, and from how many nodes 5 % would be found."""
    baseline = learnt.baseline
    lines = [paint("BASELINE", "green", style) + f"  {len(baseline.hosts)} good nodes, {learnt.reports} reports"]
    lines += wrap(
        clean("; ".join(f"{name}: {value}" for name, value in baseline.hardware)), style.width, INDENT, INDENT
    )
    rows = [_row(each) for each in learnt.bounds]
    lines += heading("Bounds", style) + table(HEADERS, rows, style.width, right=(2, 3, 4, 5, 6))
    lines += wrap(EXPLAINED, style.width, INDENT, INDENT)
    if any(row[-1] == "never" for row in rows):
        lines += wrap(NEVER, style.width, INDENT, INDENT)
    told = next((e.between_repetitions for e in baseline.references if isinstance(e.between_repetitions, Gap)), None)
    if told is not None:
        lines += wrap(f"?: {told.reason}; give several reports of each node.", style.width, INDENT, INDENT)
    lines += _left_out(learnt, style)
    lines += ["", *wrap(clean(f"Next: preflight check --accept --baseline {path}"), style.width)]
    return finish(lines, style)


def _left_out(learnt: Learnt, style: Style) -> list[str]:
    if not learnt.left_out:
        return []
    lines = heading(f"Left out ({len(learnt.left_out)})", style)
    for file in learnt.left_out[:MOST_LINES]:
        lines += wrap(clean(f"{file.path}: {file.reason}"), style.width, INDENT, INDENT * 2)
    more = len(learnt.left_out) - MOST_LINES
    return lines + (wrap(f"... and {more} more", style.width, INDENT, INDENT) if more > 0 else [])


def _row(bound: Bound) -> list[str]:
    each, within = bound.reference, bound.reference.between_repetitions
    least = three_digits(each.busbw_gb_s * bound.floor) if each.size_bytes else f"{bound.floor:.1%}"
    return [
        each.collective.value,
        size_text(each.size_bytes) if each.size_bytes else f"all {each.group}",
        three_digits(each.busbw_gb_s) if each.size_bytes else "",
        f"{each.between_nodes:.1%}",
        "?" if isinstance(within, Gap) else f"{within:.1%}",
        least,
        "never" if isinstance(bound.finds_5_percent_from, Gap) else f"{bound.finds_5_percent_from} nodes",
    ]
