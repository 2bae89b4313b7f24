"""NCCL's own libraries tell their release, by which `preflight stuck` decides whether it asks RAS."""

from __future__ import annotations

import pytest

from preflight.stuck.collect.ras import read_nccl_version
from tests.simcuda import places

pytestmark = pytest.mark.simcuda


@pytest.mark.parametrize("version", places.NCCL)
def test_a_library_of_nccl_tells_its_release(version: str) -> None:
    assert read_nccl_version(str(places.nccl(version))) == version
