"""The way of every pair, on the page."""

from __future__ import annotations

from preflight.model.trial import TrialResult
from preflight.search.settings.environment import ALGORITHMS
from preflight.show.console_writer import lines_of
from preflight.show.text import Style, width_of
from preflight.show.transport import transport_section
from tests.reports import failed_trial, report_of, trial_result

RING = tuple(f"{a}>{(a + 1) % 4} via P2P/CUMEM/read" for a in range(3))
LOG = (
    *RING,
    "3>0 via SHM/direct/direct",
    "0>3 via SHM/direct/direct",
    "netif eth0",
    "network IB",
    "hca mlx5_0:1",
    "NVLS",
)
PLAIN = Style(width=80, colour=False)


def page(*trials: TrialResult) -> str:
    return "\n".join(lines_of(transport_section(report_of(trials=trials)), PLAIN))


def test_pairs_are_told_by_their_way_with_network_interfaces_and_hcas() -> None:
    text = page(trial_result(transport=LOG))
    assert "pairs 0-1, 1-2, 2-3" in text
    assert "SHM/direct/direct  pair 0-3" in text
    for word in ("What carried the data (trial default)", "NVLS", "IB", "eth0", "mlx5_0:1"):
        assert word in text


def test_the_algorithms_come_from_their_own_trial() -> None:
    extra = trial_result(ALGORITHMS.name, results=(), transport=("algorithm AllReduce 32 MiB RING/SIMPLE", *LOG))
    assert "AllReduce 32 MiB RING/SIMPLE" in page(trial_result(transport=LOG), extra)


def test_where_the_default_failed_the_fewest_settings_that_work_are_shown() -> None:
    cure = trial_result("x", env=(("NCCL_P2P_DISABLE", "1"),), transport=("0>1 via SHM/direct",))
    more = trial_result("y", env=(("A", "1"), ("B", "2")), transport=LOG)
    assert "trial x" in page(failed_trial(transport=LOG), more, cure)


def test_without_a_log_there_is_no_section() -> None:
    assert page(trial_result(transport=("eth0",))) == ""
    assert page() == ""


def test_many_pairs_fit_the_page() -> None:
    text = page(trial_result(transport=tuple(f"{a}>{a + 1} via P2P/CUMEM" for a in range(100))))
    assert "and 88 more" in text
    assert max(width_of(line) for line in text.splitlines()) <= 80
