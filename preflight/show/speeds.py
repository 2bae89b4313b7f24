"""The sections on speeds: how speeds were judged, comparisons with good nodes, and the speed of each RDMA port."""

from __future__ import annotations

from preflight.model.report import JudgedBy, Report, SpeedJudge
from preflight.model.trial import Outcome
from preflight.model.units import size_text, three_digits
from preflight.show.document import Block, Table, item, right, section, table
from preflight.show.text import fact_text, line


def speeds_section(report: Report) -> list[Block]:
    """Return the section on how speeds were judged, or [] if there is nothing to say."""
    judges = report.judged_by
    if all(each.by is SpeedJudge.NOBODY for each in judges) and not judges[1:]:
        judges = tuple(each for each in judges if each.detail.startswith("not by the baseline"))
    if not judges:
        return []
    return [*section("Speeds judged by", *(item(judge_text(each)) for each in judges), baseline_table(report))]


def judge_text(judge: JudgedBy) -> str:
    """Return one line that says how speeds were judged: by a policy, a baseline, the links, or not at all."""
    match judge.by:
        case SpeedJudge.POLICY:
            return f"the policy {line(judge.detail)}"
        case SpeedJudge.BASELINE:
            return f"the baseline {line(judge.detail)}"
        case SpeedJudge.LINKS:
            return f"what the links should give (without a policy's floor or a baseline): {line(judge.detail)}"
        case SpeedJudge.NOBODY:
            return f"nobody: {line(judge.detail)}"


def baseline_table(report: Report, share: str = "share of good, each time", result: str = "") -> Table:
    """Return the table that compares this node with known-good nodes.

    `share` and `result` are the titles of two columns.
    """
    rows = []
    for each in report.beside_baseline:
        reference = each.reference
        if reference.size_bytes and not each.is_suspicious:
            continue
        rows.append((
            reference.collective.value,
            size_text(reference.size_bytes) if reference.size_bytes else f"all {line(reference.group)}",
            " ".join(f"{share_of_good:.3f}" for share_of_good in each.measured),
            f"{each.share:.3f}",
            f"{each.floor:.3f}",
            "below" if each.is_below else "looks slow" if each.is_suspicious else "ok",
        ))  # fmt: skip
    headers = ("collective", "sizes", share, right("mean"), right("minimum"), result)
    return table(headers, rows, "This node vs known-good nodes")


def rails_section(report: Report) -> list[Block]:
    """Return the section on the speed of each RDMA port, or [] if no port was tested."""
    rows = [
        (
            f"{rail.hca}:{rail.port}{', again' if rail.repetition else ''}",
            fact_text(rail.rate_gbit_s, "{:g}".format),
            fact_text(rail.busbw_gb_s, three_digits, gap=""),
            ", ".join(rail.transport) if rail.outcome is Outcome.OK else f"{rail.outcome.value}: {rail.problem}",
        )
        for rail in report.rails
    ]
    title = "RDMA ports, one at a time (P2P and shared memory off)"
    return section(title, table(("port", "Gbit/s", "GB/s", "over"), rows))
