"""The versions of the installed Python and torch, found without importing torch."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder

from preflight import __version__
from preflight.system.machine import Json
from preflight.system.net_plugins import net_plugins

GET_TORCH = "activate the job's environment, or pip install 'preflight-nccl[torch]'"
CPU_BUILD = re.compile(r"^cuda\b[^=\n]*=\s*None", re.MULTILINE)  # then no NCCL wheel matters
NCCL_WHEELS = ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-nccl-cu14")


def installed_software(package: str = "torch") -> Json:
    """Return data on the installed software, as `{python, preflight, torch, net_plugins}`.

    `python` and `preflight` are versions. `torch` has data on torch and NCCL's wheels, or is `{"unreadable": reason}`
    if torch is not installed. `net_plugins` has NCCL's network plugins. `package` is torch's name.
    """
    return {
        "python": platform.python_version(), "preflight": __version__, "torch": _torch(package),
        "net_plugins": net_plugins(os.environ),
    }  # fmt: skip


def _torch(package: str) -> Json:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError) as error:
        return {"unreadable": f"{package} can't be located: {error}"}
    if spec is None or not spec.submodule_search_locations:
        return {"unreadable": f"{package} is not installed in {sys.prefix}: {GET_TORCH}"}
    location = next(iter(spec.submodule_search_locations))
    path = os.path.join(location, "version.py")
    try:
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            text = file.read()
    except OSError as error:
        return {"unreadable": f"{path}: {error.strerror}"}
    wheels = {} if CPU_BUILD.search(text) else installed_versions(NCCL_WHEELS)
    return {"location": location, "version_file": text, "nccl_wheels": wheels}


def module_exists(name: str) -> bool:
    """Return whether `import` would find the module `name`, such as `a.b`, without importing the module."""
    places: Sequence[str] | None = None
    whole = ""
    for part in name.split("."):
        whole = f"{whole}.{part}" if whole else part
        spec = _found(whole, places)
        if spec is None:
            return False
        places = spec.submodule_search_locations
        if places is None:
            return whole == name
    return True


def _found(name: str, places: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find(name, places) if find else None
        if spec is not None:
            return spec
    # A rank of Python 3.10 looks where it was started too: PYTHONSAFEPATH came with 3.11.
    is_unsafe = places is None and sys.version_info < (3, 11)
    return PathFinder.find_spec(name, [os.getcwd()]) if is_unsafe else None


def installed_versions(distributions: Iterable[str]) -> dict[str, str]:
    """Return {name: version} for the installed packages in `distributions`, without importing the packages."""
    import importlib.metadata  # noqa: PLC0415 - loads an e-mail parser, which takes longer than many probes

    found = {}
    for name in distributions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
