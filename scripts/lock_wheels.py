"""Ask the package index for the wheel of every locked dependency on another machine: `make arm64`.

Prints a Markdown table, a row for each package and a column for each Python. Nothing is installed. Exit code 1 where a
package has no wheel for it, or one that the lock does not hold.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker
from packaging.utils import parse_wheel_filename

PROJECT = Path(__file__).resolve().parent.parent
LOCK = PROJECT / "requirements.lock"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
GLIBC = ("manylinux2014", "manylinux_2_17", "manylinux_2_26", "manylinux_2_27", "manylinux_2_28")
LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: ; ([^\\]+?))?(?: \\)?$")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Locked:
    """A package of the lock; `marker` says on which Pythons and machines it is wanted."""

    name: str
    version: str
    marker: str
    hashes: frozenset[str]

    def is_for(self, python: str, machine: str) -> bool:
        """Tell whether a Python on such a machine wants it."""
        where = {"python_version": python, "python_full_version": f"{python}.9", "platform_machine": machine}
        return not self.marker or Marker(self.marker).evaluate(where | {"sys_platform": "linux"})


def locked(text: str) -> tuple[Locked, ...]:
    """Return the packages of a lock file with their hashes."""
    packages: list[Locked] = []
    for line in text.splitlines():
        found, hashes = LOCKED.match(line), HASH.findall(line)
        if found:
            packages.append(Locked(found[1], found[2], found[3] or "", frozenset()))
        elif hashes:
            last = packages[-1]
            packages[-1] = Locked(last.name, last.version, last.marker, last.hashes | set(hashes))
    return tuple(packages)


def wheels_of(packages: Sequence[Locked], python: str, machine: str) -> dict[str, str]:
    """Return the wheel's tag by the package's name; CalledProcessError where one has no wheel."""
    wanted = {each.name: each for each in packages if each.is_for(python, machine)}
    with tempfile.TemporaryDirectory() as target:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
        command += ["--ignore-installed", "--no-deps", "--only-binary=:all:", "--report", "-", "--target", target]
        command += ["--python-version", python, "--implementation", "cp", "--abi", f"cp{python.replace('.', '')}"]
        command += ["--abi", "abi3", "--abi", "none"]
        command += [word for glibc in GLIBC for word in ("--platform", f"{glibc}_{machine}")]
        command += [f"{each.name}=={each.version}" for each in wanted.values()]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    tags = {}
    for each in report["install"]:
        name = each["metadata"]["name"].lower().replace("_", "-")
        known = each["download_info"]["archive_info"]["hashes"]["sha256"] in wanted[name].hashes
        file = each["download_info"]["url"].rpartition("/")[2]
        tag = next(iter(sorted(str(tag) for tag in parse_wheel_filename(file)[3])))
        tags[name] = tag if known else f"{tag}, NOT IN THE LOCK"
    missing = {name: "NO WHEEL" for name in wanted if name not in tags}
    return tags | missing


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m scripts.lock_wheels", description=__doc__)
    parser.add_argument("--machine", default="aarch64", help="as `uname -m` says it (default aarch64)")
    parser.add_argument("pythons", nargs="*", default=PYTHONS, help=f"by default {' '.join(PYTHONS)}")
    options = parser.parse_args()
    packages = locked(LOCK.read_text(encoding="utf-8"))
    columns = {}
    for python in options.pythons:
        try:
            columns[python] = wheels_of(packages, python, options.machine)
        except subprocess.CalledProcessError as error:
            print(f"Python {python}: {error.stderr.strip().splitlines()[-1]}", file=sys.stderr)  # noqa: T201
            return 1
    print(f"| package | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")  # noqa: T201
    for name in dict.fromkeys(each.name for each in packages):
        cells = [column.get(name, "not wanted") for column in columns.values()]
        print(f"| {name} | {' | '.join(cells)} |")  # noqa: T201
    wrong = [tag for column in columns.values() for tag in column.values() if "NO" in tag]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
