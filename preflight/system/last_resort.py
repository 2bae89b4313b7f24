"""The last steps if preflight can't be loaded or fails unexpectedly: rename old outputs and report a memory limit."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from preflight.errors import OutputError
from preflight.system.files import set_aside

DEFAULTS = {"--report": "preflight-report.json", "--env-out": "preflight.env"}
REPEATED = ("--also", "--json")


def retire_outputs(argv: Sequence[str]) -> tuple[str, ...]:
    """Rename every output of `preflight check` with the arguments `argv`, and return the new names.

    A new name ends with `.stale`.
    """
    renamed = []
    for path in outputs_of(argv):
        with contextlib.suppress(OutputError, ValueError):
            if stale := set_aside(path):
                renamed.append(stale)
    return tuple(renamed)


def outputs_of(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the output files of `preflight check` with the arguments `argv`, or () for another command."""
    if not argv or argv[0] != "check":
        return ()
    named, more = dict(DEFAULTS), []
    words = iter(argv[1:])
    for word in words:
        option, equals, value = word.partition("=")
        if option in (*DEFAULTS, *REPEATED):
            value = value if equals else next(words, "")
            if option in DEFAULTS:
                named[option] = value
            else:
                more.append(value.partition("=")[2] if option == "--also" else value)
    return tuple(path for path in (*named.values(), *more) if path not in ("", "-"))


def limit_behind(error: BaseException) -> str:
    """Return a hint about `ulimit -v` if `error` says that the address space ran out.

    Otherwise return "".
    """
    if not isinstance(error, MemoryError) and "failed to map segment" not in str(error):
        return ""
    try:
        from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit  # noqa: PLC0415  this too has to be mapped
    except ImportError:
        return "; is there memory, or a limit of `ulimit -v`?"
    allowed = getrlimit(RLIMIT_AS)[0]
    if allowed == RLIM_INFINITY:
        return "; see `free -m`, and the memory limit of this container or job"
    return f"; `ulimit -v` allows {allowed >> 20} MiB only: raise it"
