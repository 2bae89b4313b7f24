"""A fallback if preflight's own modules can't be loaded: rename an earlier check's outputs, so that none looks new."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from preflight.errors import OutputError
from preflight.system.files import set_aside

DEFAULTS = {"--report": "preflight-report.json", "--env-out": "preflight.env"}
REPEATED = ("--also", "--json")


def retire_outputs(argv: Sequence[str]) -> tuple[str, ...]:
    """Rename to `.stale` every output that `preflight check` with the arguments `argv` would write.

    Return the new names.
    """
    renamed = []
    for path in outputs_of(argv):
        with contextlib.suppress(OutputError, ValueError):
            if stale := set_aside(path):
                renamed.append(stale)
    return tuple(renamed)


def outputs_of(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the output files that the arguments `argv` name; empty for another command."""
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
