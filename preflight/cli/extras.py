"""Packages that only some results need and a plain `pip install preflight-nccl` omits, checked before the work."""

from __future__ import annotations

from preflight.errors import UsageError
from preflight.show.formats import HTML_MODULES
from preflight.system.installed import module_exists


def must_have_html(asked: str) -> None:
    """Raise UsageError if HTML pages can't be made here; `asked` is the option that requested one."""
    if missing := ", ".join(name for name in HTML_MODULES if not module_exists(name)):
        raise UsageError(f"{asked}: HTML needs {missing}: pip install 'preflight-nccl[html]'")
