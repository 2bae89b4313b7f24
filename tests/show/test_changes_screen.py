"""The first screens of `preflight diff`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.fleet.changes import Snapshot, compare
from preflight.model.change import Changes
from preflight.model.facts import NodeFacts
from preflight.show.changes import changes_page
from preflight.show.text import Detail, Style
from tests.fleet.test_changes import after, base, with_gpu, with_pcie, with_pids_and_heat, with_torch, with_variable
from tests.reports import report_of, trial_result
from tests.show.outputs import keep_screen

GOOD = replace(report_of(trials=(trial_result(),)), nodes=(base(),), findings=())
SICK = after((with_pcie(5, width=8), with_variable("NCCL_P2P_DISABLE", "1"), with_torch(nccl="2.28.9"),
              *(with_gpu(i, power_limit_w=400.0) for i in range(4)), with_pids_and_heat))  # fmt: skip


def named(host: str) -> NodeFacts:
    return replace(base(), host=host)


DIFFERENCES = {
    "changed": (GOOD, replace(report_of(trials=(trial_result(median_us=1600.0),)), nodes=(SICK,))),
    "nothing": (GOOD, replace(GOOD, nodes=(after((with_pids_and_heat,)),))),
    "not_compared": (
        replace(GOOD, nodes=(base(), replace(base(), host="n2"))),
        replace(GOOD, nodes=(replace(base(), host="n7"),)),
    ),
}


def difference(name: str) -> Changes:
    before, now = DIFFERENCES[name]
    return compare(Snapshot.of(before), Snapshot.of(now))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_the_screen_is_the_expected_one(name: str) -> None:
    keep_screen(f"diff_{name}", changes_page(difference(name)).shown(Detail.SCREEN, Style(width=80)))


@pytest.mark.parametrize("name", DIFFERENCES)
@pytest.mark.parametrize("width", [40, 80])
def test_everything_fits_the_page(name: str, width: int) -> None:
    assert all(
        len(line) <= width for line in changes_page(difference(name)).shown(Detail.ALL, Style(width)).splitlines()
    )
