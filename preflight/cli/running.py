"""How a command that starts ranks runs them, and on which machine's facts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from preflight.cli.program import STARTED_AT
from preflight.errors import UsageError

if TYPE_CHECKING:
    from preflight import app as application
    from preflight.model.report import Report
    from preflight.system.machine import Machine


def run(
    request: application.Request, sysroot: str | None, save: Callable[[Report], None] = lambda _: None
) -> application.Checked:
    """Run the check; `save` is given the report that holds if this process is killed meanwhile."""
    from preflight import app as application  # noqa: PLC0415
    from preflight.launch.progress import Progress  # noqa: PLC0415
    from preflight.plan.profiles import DEADLINE_S  # noqa: PLC0415
    from preflight.system.questions import live_machine  # noqa: PLC0415

    progress = Progress(request.deadline_s or DEADLINE_S[request.profile])
    try:
        return application.check(
            request, machine_at(sysroot), live_machine(), os.environ, progress.show, STARTED_AT, save
        )
    finally:
        progress.clear()


def machine_at(sysroot: str | None) -> Machine:
    from preflight.system.questions import live_machine, tree_machine  # noqa: PLC0415

    if sysroot is None:
        return live_machine()
    if not os.path.isdir(sysroot):
        raise UsageError(f"--sysroot {sysroot}: not a directory")
    return tree_machine(Path(sysroot))
