"""The page's sections on several nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.model.network_survey import PathEnd
from preflight.model.storage import NodeStorage, SharedStorage
from preflight.show.console_writer import lines_of
from preflight.show.network_survey import between_sections
from preflight.show.text import Style, width_of
from tests.node_facts import netif, node
from tests.reports import report_of
from tests.search.ways import between, nodes


def page(count: int = 3, width: int = 80, **overrides: object) -> str:
    ways = between(nodes(count, "eth0", "dead0"), lambda r: PathEnd.DROPPED if r.netif == "dead0" else PathEnd.OK)
    facts = tuple(node(host=f"n{k}", netifs=(netif(mtu=1500 if k else 9000),)) for k in range(count))
    report = replace(report_of(), between=replace(ways, **overrides), nodes=facts)  # type: ignore[arg-type]
    return "\n".join(lines_of(between_sections(report), Style(width)))


def test_one_node_has_no_such_section() -> None:
    assert between_sections(report_of()) == []


def test_the_matrix_the_choice_what_fails_elsewhere_and_what_differs_are_shown() -> None:
    shown = page()
    assert "eth0 reaches every node, 1.00 GB/s, 50 µs there and back; the fastest" in " ".join(shown.split())
    assert "gets no answer: n0 to n1 and 5 more" in shown
    assert "MTU of eth0" in shown
    row = next(line for line in shown.splitlines() if line.strip().startswith("n1 "))
    assert row.split() == ["n1", "1.00", "-", "1.00"]


def test_many_nodes_have_a_line_each() -> None:
    assert "slowest GB/s" in page(12)


def test_storage_is_shown_per_node_and_together() -> None:
    storage = SharedStorage(
        "/ckpt", 64 << 20, (NodeStorage(0, "n0", 1, write_gb_s=1.5), NodeStorage(1, "n1", 0)), 3.0, 2.0
    )
    shown = page(2, storage=storage)
    assert "Storage /ckpt, 64 MiB a node" in shown
    assert ["together", "3.00", "2.00"] in [line.split() for line in shown.splitlines()]


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("count", [2, 8, 20])
def test_no_line_is_wider_than_the_page(width: int, count: int) -> None:
    assert max(map(width_of, page(count, width).splitlines())) <= width
