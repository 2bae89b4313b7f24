"""The start of the commands `preflight` and `preflight-nccl`: whose files are in the folder `preflight`?

Other projects on the package index have a package `preflight` too, and pip puts their files into the same folder. The
folder of this file has a name that is ours alone, so this file stays whatever is installed or removed.
"""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False  # as type checkers know it; nothing large is loaded before the start is checked
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

NAME = "preflight-nccl"
HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPAIR = f"pip install --force-reinstall --no-deps {NAME}"
APART = "give each an environment of its own"
OURS = b'"""preflight: find out why NCCL will fail'  # how preflight/__init__.py begins


def main() -> NoReturn:
    """Run the command line, or say in one line why the files of `preflight` are not ours; the exit code is then 3."""
    stop_if_damaged()
    if note := neighbors_note():
        _say(note)
    from preflight.__main__ import main as run  # noqa: PLC0415  whose it is was not known before

    run()


def stop_if_damaged() -> None:
    """Say in one line why the files of `preflight` are not ours, and exit with 3; nothing if they are."""
    if why := damage():
        _say(why)
        os._exit(3)


def damage() -> str:
    """Return why the folder `preflight` is not ours as it was installed, and what to do; "" if it is.

    A checkout has no list of files, so only the first file is read there.
    """
    others = neighbors()
    if is_ours() and not others:
        return ""
    broken = [name for name, size in own_files() if size_now(name) != size]
    if is_ours() and not broken:
        return ""
    where = os.path.join(HOME, "preflight")
    if others:
        both = f"{where} also holds files of {' and '.join(others)}, which replaced {_counted(broken)} of {NAME}"
        return f"{both}: {APART}, or remove it and then run `{REPAIR}`"
    how = "are missing or changed, as after another package with the name `preflight` was removed"
    return f"{_counted(broken)} of {NAME} in {where} {how}: `{REPAIR}`"


def neighbors_note() -> str:
    """Return what a user has to know if another project's files lie in our folder and ours are whole; "" if none do."""
    others = neighbors()
    if not others:
        return ""
    names = " and ".join(others)
    return f"{names} installs into the same folder `preflight`: {NAME} is whole, {names} may not be; {APART}"


def is_ours() -> bool:
    """Return whether preflight/__init__.py is this project's."""
    try:
        with open(os.path.join(HOME, "preflight", "__init__.py"), "rb") as file:
            return file.read(len(OURS)) == OURS
    except OSError:
        return False


def neighbors(all_names: bool = False) -> list[str]:
    """Return the other installed projects with files in our folder.

    Only those whose names begin with `preflight` are looked into, because to read all lists takes too long for a
    start; `all_names` looks into all.
    """
    found = []
    for folder in _metadata():
        name, _, version = folder.removesuffix(".dist-info").partition("-")
        is_other = name.lower().replace("_", "-") != NAME and (all_names or name.lower().startswith("preflight"))
        if is_other and any(path.startswith("preflight/") for path, _ in _files_of(folder)):
            found.append(f"{name.replace('_', '-')} {version}")
    return sorted(found)


def own_files() -> Iterator[tuple[str, int]]:
    """Yield each file of ours below `preflight`, as it was installed, and its size in bytes."""
    for folder in _metadata():
        if folder.lower().startswith(f"{NAME.replace('-', '_')}-"):
            for path, size in _files_of(folder):
                if path.startswith("preflight/") and size >= 0:
                    yield path, size


def _metadata() -> list[str]:
    try:
        return [name for name in os.listdir(HOME) if name.endswith(".dist-info")]
    except OSError:
        return []


def _files_of(folder: str) -> Iterator[tuple[str, int]]:
    """Yield what a project has installed, and the sizes; -1 for a file whose size pip does not record."""
    try:
        with open(os.path.join(HOME, folder, "RECORD"), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        path, _, size = line.rsplit(",", 2) if line.count(",") >= 2 else (line, "", "")
        yield path.strip('"'), int(size) if size.isdecimal() else -1


def size_now(path: str) -> int:
    """Return the size of a file of ours, -1 if it is missing."""
    try:
        return os.stat(os.path.join(HOME, path)).st_size
    except OSError:
        return -1


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # stderr may be closed
        os.write(2, f"preflight: {text}\n".encode(errors="backslashreplace"))


def _counted(files: list[str]) -> str:
    first = files[0] if files else "preflight/__init__.py"
    return first if len(files) < 2 else f"{first} and {len(files) - 1} other file{'s' * (len(files) > 2)}"
