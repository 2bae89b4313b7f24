"""The setting that takes the files from NCCL from which it reads what the environment does not say (facts 1.0)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.model.facts import Gap
from preflight.model.trial import LeftOut, Scope, Setting
from preflight.plan.ground import Ground, Planned

NAME = "nccl.conf"
SYSTEM_FILE = "/etc/nccl.conf"
NOTHING = "/dev/null"  # an empty file in place of the user's; /etc/nccl.conf is read all the same
CONF_FILE_SINCE = (2, 23)
SETTABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def files(ground: Ground) -> Iterator[Planned]:
    """Yield what puts NCCL's defaults in the place of the files' content; nothing where they hold nothing.

    The environment goes before the files, and NCCL takes an empty value as its default, for numbers in every version.
    """
    entries = ground.node.nccl_conf
    if isinstance(entries, Gap):
        yield LeftOut(NAME, f"the files that NCCL reads could not be read: {entries.reason}")
        return
    named = [entry for entry in entries if SETTABLE.fullmatch(entry.name)]
    if not named:
        return
    by_file = ground.version is None or ground.version >= CONF_FILE_SINCE
    emptied = [entry.name for entry in named if entry.file == SYSTEM_FILE or not by_file]
    env = dict.fromkeys(emptied, "")
    if len(emptied) < len(named):
        env["NCCL_CONF_FILE"] = NOTHING
    told = f"what {', '.join(sorted({entry.file for entry in named}))} tells every job on this machine"
    yield Setting(NAME, tuple(sorted(env.items())), told, ("conf",), Scope.ONE_NODE)
