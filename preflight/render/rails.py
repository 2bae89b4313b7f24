"""What each RDMA port of the node carried by itself, as a table."""

from __future__ import annotations

from preflight.model.facts import Gap
from preflight.model.report import Report
from preflight.model.trial import Outcome
from preflight.model.units import three_digits
from preflight.render.text import Style, clean, heading, table

HEADERS = ("port", "Gbit/s", "GB/s", "over")


def rails_section(report: Report, style: Style) -> list[str]:
    """Return a row per port; nothing where none was tried."""
    rows = [
        (
            clean(f"{rail.hca}:{rail.port}"),
            "?" if isinstance(rail.rate_gbit_s, Gap) else f"{rail.rate_gbit_s:g}",
            "" if isinstance(rail.busbw_gb_s, Gap) else three_digits(rail.busbw_gb_s),
            clean(", ".join(rail.transport) if rail.outcome is Outcome.OK else f"{rail.outcome.value}: {rail.problem}"),
        )
        for rail in report.rails
    ]
    title = "RDMA ports, each by itself (P2P and shared memory off)"
    return [*heading(title, style), *table(HEADERS, rows, style.width)] if rows else []
