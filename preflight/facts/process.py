"""Read the limits, environment variables, NCCL settings and software versions that the ranks inherit."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from functools import partial

from preflight.errors import UnreadableFact
from preflight.facts.reading import answered, gap_or
from preflight.model.facts import EnvVar, Limit, LimitFacts, NcclConfEntry, SoftwareFacts, TorchFacts
from preflight.model.gap import NOT_READ
from preflight.system.kernel_queries import is_reported
from preflight.system.machine import Json, Machine
from preflight.system.secrets import shown


def probe_limits(machine: Machine) -> LimitFacts:
    """Return the resource limits of this process that affect NCCL and RDMA."""
    answer = machine.ask("rlimits")
    names = {"memlock": "memlock_bytes", "nofile": "nofile", "stack": "stack_bytes", "nproc": "nproc"}
    limits = {fact: answer[name] for name, fact in names.items()}
    return LimitFacts(**{fact: each if isinstance(each, int) else Limit.UNLIMITED for fact, each in limits.items()})


def probe_environment(machine: Machine) -> tuple[EnvVar, ...]:
    """Return the environment variables that NCCL, gloo, torch or CUDA read, sorted by name."""
    return tuple(EnvVar(name, value) for name, value in sorted(machine.ask("environment").items()))


def reported_environment(environ: Mapping[str, str]) -> tuple[EnvVar, ...]:
    """Return the variables of `environ` that a report may contain, without secrets and sorted by name."""
    return tuple(EnvVar(name, shown(name, value)) for name, value in sorted(environ.items()) if is_reported(name))


SYSTEM_FILE = "/etc/nccl.conf"
VALUE_CHARS = 1023  # NCCL cuts what is longer


def probe_nccl_conf(machine: Machine, process: Machine) -> tuple[NcclConfEntry, ...]:
    """Return the effective settings of NCCL's configuration files, in reading order.

    The files are read from `machine`, and the environment and the home directory from `process`.
    """
    # NCCL reads the file in NCCL_CONF_FILE, or else the user's file, and then always /etc/nccl.conf. The first value of
    # a name counts. A missing file adds no setting.
    variables, place = process.ask("environment"), process.ask("home")
    named, home = variables.get("NCCL_CONF_FILE", ""), place["home"]  # NCCL expands no `~`
    own = posixpath.join(place["working_directory"], named) if named else f"{home}/.nccl.conf" if home else ""
    files = filter(None, (own, SYSTEM_FILE))
    texts = [(file, machine.text(file)) for file in files if machine.exists(file)]
    return first_of_each_name([entry for file, text in texts for entry in parse_nccl_conf(file, text)])


def parse_nccl_conf(file: str, text: str) -> tuple[NcclConfEntry, ...]:
    """Return the settings in `text`, the content of an NCCL configuration file.

    The text is parsed in the same way as NCCL parses the file. Quotes and blanks are kept.
    """
    # A setting is a line `NAME=value`. `#` begins a comment only in the first column.
    found = re.findall(r"^([^#=\n][^=\n]*)=(.*)$", text, re.MULTILINE)
    return tuple(NcclConfEntry(file, name[:VALUE_CHARS], value[:VALUE_CHARS]) for name, value in found)


def first_of_each_name(entries: list[NcclConfEntry]) -> tuple[NcclConfEntry, ...]:
    """Return the first entry of each name, in the order of `entries`."""
    winners = {entry.name: entry for entry in reversed(entries)}
    return tuple(entry for entry in entries if entry is winners[entry.name])


def probe_software(machine: Machine) -> SoftwareFacts:
    """Return the versions of Python, preflight and torch.

    If torch is not installed, a Gap with the reason replaces the version of torch.
    """
    answer = machine.ask("software")
    return SoftwareFacts(
        python=str(answer["python"]),
        preflight=str(answer["preflight"]),
        torch=gap_or(lambda: _parse_torch(answered(answer["torch"]))),
        net_plugins=NOT_READ if (plugins := answer.get("net_plugins")) is None else tuple(map(str, plugins)),
    )


def _parse_torch(torch: Json) -> TorchFacts:
    version_file = str(torch["version_file"])
    return TorchFacts(
        version=parse_version(version_file, "__version__"),
        cuda=gap_or(lambda: parse_version(version_file, "cuda")),
        nccl=gap_or(lambda: choose_nccl(parse_version(version_file, "cuda"), torch["nccl_wheels"])),
        location=str(torch["location"]),
        other_build=parse_other_build(version_file),
    )


def parse_other_build(version_file: str) -> str:
    """Return the ROCm or XPU version of torch, such as `ROCm 6.2.41134`, or "" for other builds of torch.

    `version_file` is the text of torch/version.py.
    """
    for name, build in (("hip", "ROCm"), ("xpu", "XPU")):
        version = gap_or(partial(parse_version, version_file, name))
        if isinstance(version, str):
            return f"{build} {version}"
    return ""


def parse_version(version_file: str, name: str) -> str:
    """Return the text that is assigned to `name` in `version_file`, the content of torch/version.py.

    Raise UnreadableFact if no text is assigned to `name`.
    """
    match = re.search(rf"^{name}(?::[^=\n]*)? *= *(?:'([^'\n]*)'|\"([^\"\n]*)\"|None)", version_file, re.MULTILINE)
    if match is None:
        raise UnreadableFact(f"torch/version.py: it assigns no {name}")
    if version := match[1] or match[2]:
        return version
    raise UnreadableFact("this torch was built without CUDA" if name == "cuda" else f"torch/version.py: no {name}")


def choose_nccl(cuda: str, wheels: dict[str, str]) -> str:
    """Return the version of the installed NCCL wheel for `cuda`, torch's CUDA version.

    Raise UnreadableFact if the wheel is not in `wheels`, which maps the names of installed NCCL wheels to versions.
    """
    # Other packages than torch may have installed wheels too.
    wheel = f"nvidia-nccl-cu{cuda.partition('.')[0]}"
    if wheel not in wheels:
        raise UnreadableFact(f"{wheel} is not installed, so torch contains NCCL or uses the system's NCCL")
    return wheels[wheel]
