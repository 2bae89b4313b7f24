"""The network plugins that NCCL would load on this machine, such as aws-ofi-nccl."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

VARIABLE = "NCCL_NET_PLUGIN"
DEFAULT = "libnccl-net.so"
CACHE = "/etc/ld.so.cache"  # it holds the paths of libraries, each ended by a NUL
SYSTEM_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


def net_plugins(environ: Mapping[str, str], cache: str = CACHE) -> list[str] | None:
    """Return the paths of the network plugins that NCCL would load.

    Return None if NCCL_NET_PLUGIN is set but empty, because NCCL versions handle this case differently.
    """
    names = [name.strip() for name in environ.get(VARIABLE, DEFAULT).split(",") if name.strip()]
    if not names:
        return None
    cached = _cached(cache)
    found = (_found(name, environ, cached) for name in names if name != "none")
    return list(dict.fromkeys(_printable(path) for path in found if path))


def _printable(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _found(name: str, environ: Mapping[str, str], cached: Mapping[str, str]) -> str:
    """Return the path of the plugin `name`, or "" if there is no file.

    `name` is a path, a file name, or the word WORD of the file name `libnccl-net-WORD.so`.
    """
    if "/" in name:
        return name if os.path.isfile(name) else ""
    folders = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for file in dict.fromkeys((name, name if name == DEFAULT else f"libnccl-net-{name}.so")):
        before = (os.path.join(folder, file) for folder in folders)
        after = (os.path.join(folder, file) for folder in SYSTEM_FOLDERS)
        for path in _existing((*before, cached.get(file, ""), *after)):
            return path
    return ""


def _existing(paths: tuple[str, ...]) -> Iterator[str]:
    return (path for path in paths if path and os.path.isfile(path))


def _cached(cache: str) -> dict[str, str]:
    """Return the libraries in the loader's cache that may be plugins, as {file name: path}."""
    try:
        with open(cache, "rb") as file:
            paths = re.findall(rb"/[^\0]{0,4000}/[^\0/]{1,255}\.so(?=\0)", file.read())
    except OSError:
        return {}
    return {os.path.basename(path): path for path in map(os.fsdecode, reversed(paths))}
