"""Write docs/first-minute.svg, the terminal at the top of the README: a real command, and what it really prints.

    python -m scripts.record_svg

tests/test_readme.py holds the file against the command's output.
"""

from __future__ import annotations

import os
import subprocess
import sys
from html import escape
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
TARGET = PROJECT / "docs" / "first-minute.svg"
LOG = "1_qwen_vl_oom_behind_timeout.log"
COLUMNS, LINE_PX, COLUMN_PX, EDGE_PX = 80, 18, 8, 12


def recorded() -> str:
    """Return the picture of `preflight explain` on a log whose advice in the report was another cause."""
    environ = os.environ | {"COLUMNS": str(COLUMNS), "PREFLIGHT_VERBOSE": "", "NO_COLOR": "1"}
    environ["PYTHONPATH"] = str(PROJECT)
    folder = PROJECT / "tests" / "explain" / "seeds"
    line = [sys.executable, "-m", "preflight", "explain", LOG]
    ran = subprocess.run(line, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    return _drawn([f"$ preflight explain {LOG}", *ran.stdout.splitlines()])


def _drawn(lines: list[str]) -> str:
    width, height = COLUMNS * COLUMN_PX + 2 * EDGE_PX, len(lines) * LINE_PX + 2 * EDGE_PX
    rows = []
    for place, text in enumerate(lines):
        weight = ' font-weight="bold"' if place < 2 else ""
        y = EDGE_PX + LINE_PX * (place + 0.75)
        rows += [f'<text x="{EDGE_PX}" y="{y:g}" xml:space="preserve"{weight}>{escape(text)}</text>'] if text else []
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="ui-monospace,Menlo,Consolas,monospace" font-size="13" fill="#e6edf3">'
    )
    title = "<title>preflight explain, and its first screen</title>"
    return "\n".join([head, title, '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>', *rows, "</svg>", ""])


if __name__ == "__main__":
    TARGET.write_text(recorded(), encoding="utf-8")
