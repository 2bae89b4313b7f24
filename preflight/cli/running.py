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
    request: application.Request,
    sysroot: str | None,
    capture_file: str | None = None,
    save: Callable[[Report], None] = lambda _: None,
) -> application.Checked:
    """Run a check on this machine, on a tree's facts, or on a capture whose machine the backend plays.

    `save` is given the report that holds if this process is killed meanwhile.
    """
    from preflight import app as application  # noqa: PLC0415
    from preflight.launch.progress import Progress  # noqa: PLC0415
    from preflight.plan.profiles import DEADLINE_S  # noqa: PLC0415
    from preflight.system.questions import live_machine  # noqa: PLC0415

    if sysroot is not None and capture_file is not None:
        raise UsageError("--sysroot and --machine: one machine at a time")
    live = live_machine()
    machine, silent = (machine_at(sysroot), {}) if capture_file is None else _captured(capture_file)
    process = live if capture_file is None else machine
    progress = Progress(request.deadline_s or DEADLINE_S[request.profile])
    try:
        return application.check(request, machine, process, os.environ, progress.show, STARTED_AT, save, silent)
    finally:
        progress.clear()


def _captured(path: str) -> tuple[Machine, dict[str, str]]:
    from preflight.probe.capture import open_capture  # noqa: PLC0415
    from preflight.system.files import read_input  # noqa: PLC0415

    return open_capture(read_input(path))


def machine_at(sysroot: str | None) -> Machine:
    from preflight.system.questions import live_machine, tree_machine  # noqa: PLC0415

    if sysroot is None:
        return live_machine()
    if not os.path.isdir(sysroot):
        raise UsageError(f"--sysroot {sysroot}: not a directory")
    return tree_machine(Path(sysroot))
