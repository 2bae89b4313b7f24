"""Each study of a number, small: no promise is broken."""

from __future__ import annotations

from importlib import import_module

import pytest

from scripts.studies.__main__ import STUDIES

pytestmark = pytest.mark.heavy(3)


@pytest.mark.parametrize("name", STUDIES)
def test_a_small_study_finds_no_broken_promise(name: str) -> None:
    found = list(import_module(f"scripts.studies.{name}").study(True))
    assert [line for line, is_kept in found if not is_kept] == []
    assert len(found) > 1
