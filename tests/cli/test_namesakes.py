"""Beside another project with a package `preflight`, ours either works or says in one line what to do.

The others are wheels made here, with the layout of the two on the package index: one has a module `cli` and the
command `preflight`, the other only modules of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import preflight_nccl
from tests.conftest import PROJECT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

OTHERS = {
    "preflight-ml": {
        "preflight/__init__.py": "__version__ = '0.1.1'\n",
        "preflight/cli.py": "def main():\n    print('the other preflight')\n",
        "preflight/errors.py": "class Bad(Exception): ...\n",
    },
    "preflight": {
        "preflight/__init__.py": "",
        "preflight/site.py": "def main():\n    print('the other preflight')\n",
        "preflight/__main__.py": "print('the other preflight')\n",
    },
    "deployer": {"preflight/__init__.py": "", "preflight/deploy.py": "def main():\n    print('the other preflight')\n"},
}
STARTS = {"preflight-ml": "preflight.cli:main", "preflight": "preflight.site:main", "deployer": "preflight.deploy:main"}


def wheel_of(folder: Path, name: str, files: dict[str, str], start: str) -> Path:
    """Write a wheel with these files and the command `preflight`."""
    info = f"{name.replace('-', '_')}-0.1.1.dist-info"
    contents = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\npreflight = {start}\n",
    }
    path = folder / f"{name.replace('-', '_')}-0.1.1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for each, text in contents.items():
            wheel.writestr(each, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{each},,\n" for each in [*contents, f"{info}/RECORD"]))
    return path


@pytest.fixture(scope="module")
def own_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(PROJECT)]
    subprocess.run(build, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


Pip = Callable[..., None]


class Place:
    """A venv with the packages that preflight needs, and with pip."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        venv.EnvBuilder(symlinks=True, with_pip=True).create(folder)
        packages = next(folder.glob("lib/python*/site-packages"))
        (packages / "needed.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))

    def pip(self, *arguments: str) -> None:
        line = [str(self.home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", *arguments]
        subprocess.run(line, check=True, capture_output=True)

    def install(self, wheel: Path) -> None:
        self.pip("install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", str(wheel))

    def remove(self, name: str) -> None:
        self.pip("uninstall", "--quiet", "--yes", name)

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [self.home / "bin" / script, *(arguments or ("timeout", "--params", "7B", "-q"))],
            cwd="/", env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def has(self, script: str) -> bool:
        return (self.home / "bin" / script).exists()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "venv")


def works(ran: subprocess.CompletedProcess[str]) -> bool:
    return ran.returncode == 0 and "SAFE TIMEOUT" in ran.stdout


def says(ran: subprocess.CompletedProcess[str], *texts: str) -> bool:
    """Return whether a command said in one line what is wrong, and did nothing."""
    return ran.returncode == 3 and ran.stdout == "" and len(ran.stderr.splitlines()) == 1 and all(
        text in ran.stderr for text in texts
    )  # fmt: skip


REPAIR = f"`{preflight_nccl.REPAIR}`"


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_is_installed_and_removed_ours_works_or_says_why(place: Place, own_wheel: Path, name: str) -> None:
    other = wheel_of(place.home.parent, name, OTHERS[name], STARTS[name])
    # The other one first: our files win, and a line says whose else there are where its name tells.
    place.install(other)
    place.install(own_wheel)
    ran = place.run("preflight")
    assert works(ran) and works(place.run("preflight-nccl")), ran.stderr
    assert f"{name} 0.1.1 has files there too" in " ".join(place.run("preflight", "doctor").stdout.split())
    assert (f"{name} 0.1.1 installs into the same folder" in ran.stderr) == name.startswith("preflight")
    # It is removed, and takes our files with it.
    place.remove(name)
    assert not place.has("preflight")
    ran = place.run("preflight-nccl")
    assert says(ran, "preflight/__init__.py", "was removed", REPAIR), ran
    # What the line says repairs it.
    place.install(own_wheel)
    assert works(place.run("preflight")) and works(place.run("preflight-nccl"))
    # The other one last: its files win.
    place.install(other)
    ran = place.run("preflight-nccl")
    assert says(ran, "preflight/__init__.py", REPAIR), ran
    assert (f"files of {name} 0.1.1" in ran.stderr) == name.startswith("preflight")
    ran = place.run("preflight")  # by the other's script: either ours says why, or it is the other one
    assert says(ran, "preflight/__init__.py", REPAIR) or ran.stdout == "the other preflight\n", ran
    place.remove(name)
    assert says(place.run("preflight-nccl"), "preflight/__init__.py", REPAIR)
    # Ours is removed last: nothing of it stays.
    place.install(own_wheel)
    place.remove("preflight-nccl")
    packages = next(place.home.glob("lib/python*/site-packages"))
    assert not place.has("preflight-nccl")
    assert not (packages / "preflight_nccl").exists() and not (packages / "preflight").exists()


def test_a_file_that_is_missing_alone_is_named(place: Place, own_wheel: Path) -> None:
    place.install(own_wheel)
    packages = next(place.home.glob("lib/python*/site-packages"))
    (packages / "preflight" / "__init__.py").unlink()
    shutil.rmtree(packages / "preflight" / "judge")
    ran = place.run("preflight")
    assert says(ran, "preflight/__init__.py and ", " other files", REPAIR)
    place.install(own_wheel)
    assert "files as installed" in " ".join(place.run("preflight", "doctor").stdout.split())
    (packages / "preflight" / "judge" / "policy.py").write_text("")
    ran = place.run("preflight", "doctor")
    assert ran.returncode == 3 and ran.stdout.startswith("NOT SOUND  1 problem: preflight\n")


def test_a_checkout_is_no_installation_and_is_ours() -> None:
    assert preflight_nccl.is_ours()
    assert preflight_nccl.damage() == preflight_nccl.neighbors_note() == ""
