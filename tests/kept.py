"""Texts that are kept in tests/golden: `make golden` (PREFLIGHT_GOLDEN=write) writes them again."""

from __future__ import annotations

import os
from pathlib import Path

WRITING = os.environ.get("PREFLIGHT_GOLDEN") == "write"


def compare(path: Path, text: str) -> None:
    """Compare a text with the one that is kept, or keep it."""
    if WRITING:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "`make golden` writes it again: look at the diff"
