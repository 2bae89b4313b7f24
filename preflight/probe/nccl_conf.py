"""Read the files from which NCCL takes settings that the environment does not have (NCCL src/misc/param.cc)."""

from __future__ import annotations

import posixpath

from preflight.model.facts import NcclConfEntry
from preflight.system.machine import Machine

SYSTEM_FILE = "/etc/nccl.conf"
VALUE_CHARS = 1023  # NCCL cuts what is longer


def probe_nccl_conf(machine: Machine, process: Machine) -> tuple[NcclConfEntry, ...]:
    """Return the settings in force, in reading order; files that do not exist hold none.

    NCCL_CONF_FILE or else the user's file comes first, then always /etc/nccl.conf; the first value of a name wins.
    The files are read of `machine`; `process` tells which variables and home directory NCCL sees.
    """
    variables, place = process.ask("environment"), process.ask("home")
    files = conf_files(variables.get("NCCL_CONF_FILE", ""), place["home"], place["working_directory"])
    texts = [(file, machine.text(file)) for file in files if machine.exists(file)]
    return first_of_each_name([entry for file, text in texts for entry in parse_nccl_conf(file, text)])


def conf_files(named: str, home: str, working_directory: str) -> tuple[str, ...]:
    """Return the absolute paths of the files that NCCL reads, in its order; it does not expand `~`."""
    if named:
        return (posixpath.join(working_directory, named), SYSTEM_FILE)
    return (f"{home}/.nccl.conf", SYSTEM_FILE) if home else (SYSTEM_FILE,)


def parse_nccl_conf(file: str, text: str) -> tuple[NcclConfEntry, ...]:
    """Parse `NAME=value` lines as NCCL does: `#` only in the first column, no quotes removed, no blanks trimmed."""
    found = []
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and name and not line.startswith("#"):
            found.append(NcclConfEntry(file, name[:VALUE_CHARS], value[:VALUE_CHARS]))
    return tuple(found)


def first_of_each_name(entries: list[NcclConfEntry]) -> tuple[NcclConfEntry, ...]:
    """Return the entries that are not shadowed by an earlier one."""
    winners: dict[str, NcclConfEntry] = {}
    for entry in entries:
        winners.setdefault(entry.name, entry)
    return tuple(winners.values())
