"""One line that says what a run is doing, for a terminal."""

from __future__ import annotations

import time

from preflight.launch.launcher import Launched


def progress_line(launched: Launched, deadline_s: float, width: int) -> str:
    """Return elapsed time, step and stage, and when it ends at the latest, cut to `width` columns."""
    elapsed_s = time.monotonic() - launched.started_at
    what = launched.running or "starting one process per rank (importing torch)"
    done = f"{len(launched.trials)} tried" if launched.trials else ""
    text = "  ".join(part for part in (f"{elapsed_s:3.0f} s", done, what, f"(at most {deadline_s:.0f} s)") if part)
    return text[: max(0, width - 1)]
