"""The table of Xids, compared with the driver's own header where its source was fetched."""

from __future__ import annotations

import re
import subprocess

import pytest

from preflight.model.xids import DRIVER, ROWS, UNLISTED, row_of
from tests.conftest import PROJECT

SOURCE = PROJECT.parent / ".mirror/NVIDIA+open-gpu-kernel-modules/repo"
HEADER = "src/common/sdk/nvidia/inc/nverror.h"
DEFINED = re.compile(r"#define\s+(\w+)\s+\((\d{1,4})\)")
# Numbers of the header that the catalog gives no action for: displays, engines, spare lifetime, security.
WITHOUT_A_ROW = frozenset(
    {0, 1, 2, 16, 19, 20, 21, 22, 23, 27, 28, 29, 30, 33, 34, 35, 36, 42, 47, 58, 59, 61, 65, 73, 78, 81, 87, 90, 91,
     122, 123, 124, 125, 138, 142, 151, 159, 164, 165, 166, 169, 170}
)  # fmt: skip
WORDS = {  # of a name in the header: a word of the row
    167: "PCIe", 168: "memory", 171: "memory", 172: "memory", 173: "C2C", 175: "memory", 79: "bus", 74: "NVLink",
}  # fmt: skip


def test_each_number_stands_in_one_row() -> None:
    numbers = [number for row in ROWS for number in row.numbers]
    assert len(numbers) == len(set(numbers))


def test_the_table_knows_every_number_of_the_drivers_header() -> None:
    if not SOURCE.is_dir():
        pytest.skip(f"the driver's source was not fetched to {SOURCE}")
    shown = subprocess.run(
        ["git", "-C", str(SOURCE), "show", f"HEAD:{HEADER}"], capture_output=True, text=True, check=True
    )
    defined = {int(number): name for name, number in DEFINED.findall(shown.stdout)}
    assert len(defined) > 120
    assert {number for number in defined if row_of(number) is UNLISTED} <= WITHOUT_A_ROW
    assert {number for row in ROWS if row.source == DRIVER for number in row.numbers} <= set(defined)
    assert all(word in row_of(number).words for number, word in WORDS.items())
