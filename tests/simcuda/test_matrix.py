"""simnccl says what NCCL chooses: a sample of the matrix on the real one, and how the matrix counts."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.simcuda import matrix
from tests.simcuda.matrix import (
    ADAPTER_SETTINGS,
    BETWEEN,
    MACHINES,
    SAMPLE,
    SETTINGS,
    Cell,
    cells,
    differences,
    hold,
    judge,
    sample,
    seed_of_today,
)
from tests.simcuda.run import read


@pytest.mark.simcuda
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("simcuda")
def test_in_a_sample_of_the_matrix_nothing_is_unexplained() -> None:
    seed = seed_of_today()
    said: list[str] = [f"PREFLIGHT_MATRIX_SEED={seed}"]
    totals = hold(sample(SAMPLE, seed), said.append)
    sys.stdout.write("\n".join(said) + "\n")
    assert totals["UNEXPLAINED"] == 0, "\n".join(said)
    assert sum(totals.values()) == SAMPLE


def test_the_matrix_has_the_cells_that_were_promised() -> None:
    assert len(MACHINES) >= 8 and len(SETTINGS) >= 14
    one_node = [cell for cell in cells() if cell.nodes == 1]
    assert len(one_node) == len(set(one_node)) == len(MACHINES) * len(SETTINGS) * 3 >= 336
    between = [cell for cell in cells() if cell.nodes == 2]
    assert len(between) == len(set(between)) == len(BETWEEN) * len(ADAPTER_SETTINGS) * 3 >= 100


def test_a_seed_draws_the_same_cells_again_and_another_one_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sample(24, "2026-01-01") == sample(24, "2026-01-01") != sample(24, "2026-01-02")
    monkeypatch.setenv("PREFLIGHT_MATRIX_SEED", "mine")
    assert seed_of_today() == "mine"


LOG = (
    "h:1:2 [0] NCCL INFO Bootstrap: Using eth0:198.18.0.1<0>\n"
    "h:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:198.18.0.1<0>\n"
    "h:1:2 [0] NCCL INFO Using network Socket\n"
    "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
)
CELL = Cell("pcie2-sys", "2.27.5", 0)


def test_what_simnccl_says_otherwise_is_unexplained_until_a_rule_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    started = "rank 0 init 0 no error\nrank 1 init 0 no error\n"
    assert differences(CELL, read(started, LOG, False, 1.0, False)) == []
    other = read(started, LOG.replace("SHM/direct/direct", "P2P/CUMEM"), False, 1.0, False)
    found = differences(CELL, other)
    assert found == ["0>1 P2P/CUMEM / SHM/direct/direct"]
    assert judge(CELL, found) == ("UNEXPLAINED", found[0])
    monkeypatch.setattr(matrix, "EXPLAINED", (matrix.Rule(lambda cell: cell == CELL, "because"),))
    assert judge(CELL, found) == ("explained", "because")


def test_a_start_that_fails_and_one_that_never_ends_are_no_agreement() -> None:
    failed = read("rank 0 init 3 internal error\n", "", False, 1.0, False)
    assert differences(CELL, failed) == ["ends with 3 / starts"]
    assert differences(CELL, read("", "", True, 1.0, False)) == ["NCCL did not end"]
    assert differences(CELL, read("", "", False, 1.0, False)), "a run that said nothing proves nothing"
    gone = Cell("pcie2-sys", "2.21.5", len(SETTINGS) - 1)
    assert differences(gone, failed) == []
    assert judge(gone, []) == ("agreed", "") and judge(Cell(gone.machine, "2.27.5", gone.setting), [])[0] == "mended"


def test_totals_are_printed_last(monkeypatch: pytest.MonkeyPatch) -> None:
    run = read("rank 0 init 0 no error\n", LOG, False, 1.0, False)
    monkeypatch.setattr(matrix, "run", lambda cell: run)
    said: list[str] = []
    assert hold([CELL, CELL], said.append) == Counter(agreed=2)
    assert said[-1].endswith("2 agreed, 0 mended, 0 explained, 0 unexplained")
