"""What only some results need, and a plain `pip install preflight-nccl` leaves out; asked for before the work."""

from __future__ import annotations

from preflight.errors import UsageError
from preflight.system.installed import module_exists

HTML = ("jinja2", "markupsafe", "pygal")


def must_have_html(asked: str) -> None:
    """Raise UsageError if a page of HTML can't be made here; `asked` is the option that asked for one."""
    if missing := ", ".join(name for name in HTML if not module_exists(name)):
        raise UsageError(f"{asked}: HTML needs {missing}: pip install 'preflight-nccl[html]'")
