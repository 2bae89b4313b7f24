"""Check the requirements of some commands: Linux, and optional packages."""

from __future__ import annotations

import sys

from preflight.errors import HarnessError, UsageError
from preflight.model.installation import HTML_MODULES
from preflight.system.installed import module_exists


def must_have_linux(asked: str) -> None:
    """Raise HarnessError if the operating system is not Linux.

    `asked` is the command that needs Linux, for the error message.
    """
    if not is_linux():
        raise HarnessError(f"{asked} needs Linux; explain, timeout, fleet and render work on {sys.platform}, too")


def is_linux() -> bool:
    """Return whether the operating system is Linux."""
    return sys.platform.startswith("linux")


def must_have_html(asked: str) -> None:
    """Raise UsageError if a package for HTML pages is not installed.

    `asked` is the option that requested an HTML page.
    """
    if missing := ", ".join(name for name in HTML_MODULES if not module_exists(name)):
        raise UsageError(f"{asked}: HTML needs {missing}: pip install 'preflight-nccl[html]'")
