"""The wheel in a clean venv: beside an old torch, which pip leaves as it is, and without; in a read-only directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from preflight.show.json_document import render_json
from tests.conftest import PROJECT
from tests.reports import report_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

MOST_PACKAGES, MOST_MB = 20, 15  # of a plain install
NO_PYDANTIC = "typer<0.29"  # later ones bring pydantic, which has PYDANTIC_MB
PYDANTIC_MB = 8
OLD_TORCH = "2.1.2"
METADATA = f"Metadata-Version: 2.1\nName: torch\nVersion: {OLD_TORCH}\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: preflight's tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@dataclass(frozen=True, slots=True)
class Installed:
    """A venv that holds the stand-in torch and preflight's wheel."""

    venv: Path
    wheel: Path

    def run(
        self, *argv: str, cwd: str | Path = "/", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the venv, away from the project's own tree."""
        environ = {"PATH": f"{self.venv}/bin:/usr/bin:/bin", "HOME": str(self.venv.parent), **(env or {})}
        return subprocess.run(argv, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=300)

    def versions(self) -> dict[str, str]:
        """Return what pip lists."""
        listed = json.loads(self.run("python", "-m", "pip", "list", "--format", "json").stdout)
        return {package["name"]: package["version"] for package in listed}


def torch_wheel(folder: Path) -> Path:
    """Write a wheel of a torch 2.1.2 that can be found and can't run anything."""
    path = folder / f"torch-{OLD_TORCH}-py3-none-any.whl"
    info = f"torch-{OLD_TORCH}.dist-info"
    files = {
        "torch/__init__.py": f"__version__ = '{OLD_TORCH}'\n",
        "torch/version.py": f"__version__ = '{OLD_TORCH}'\ncuda = None\n",
        f"{info}/METADATA": METADATA,
        f"{info}/WHEEL": WHEEL,
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)
    return path


def must(*argv: str | Path, cwd: Path = PROJECT) -> None:
    ran = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False, timeout=500)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    must(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
    (made,) = folder.glob("preflight_nccl-*.whl")
    return made


def install(wheel: Path, folder: Path, *before: str | Path, extra: str = "") -> Installed:
    """Install other packages into a clean venv, then this one with its dependencies."""
    venv = folder / "venv"
    must(sys.executable, "-m", "venv", venv)
    pip = (venv / "bin" / "python", "-m", "pip", "install", "--quiet")
    for each in (*map(str, before), f"{wheel}{extra}"):
        must(*pip, each)
    return Installed(venv, wheel)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel with the extra html where torch 2.1.2 is already."""
    folder = tmp_path_factory.mktemp("beside-torch")
    return install(wheel, folder, torch_wheel(folder), extra="[html]")


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel into an empty venv."""
    return install(wheel, tmp_path_factory.mktemp("light"))


def size_mb(venv: Path) -> float:
    """Return what the packages of a venv take, without pip and bytecode."""
    (packages,) = venv.glob("lib/python*/site-packages")
    not_ours = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    files = [path for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    sizes = [path.stat().st_size for path in files if not path.relative_to(packages).parts[0].startswith(not_ours)]
    return sum(sizes) / 1e6


def test_a_plain_install_brings_no_torch_and_little_else(light: Installed) -> None:
    versions = light.versions()
    assert {"torch", "zstandard", "pygal", "Jinja2", "py-spy", "google-re2"}.isdisjoint(versions)
    assert len(set(versions) - {"pip", "setuptools", "wheel"}) <= MOST_PACKAGES
    assert size_mb(light.venv) <= MOST_MB + PYDANTIC_MB * ("pydantic" in versions)


def test_with_a_typer_that_needs_no_pydantic_it_takes_15_mb_and_works(wheel: Path, tmp_path: Path) -> None:
    lightest = install(wheel, tmp_path, NO_PYDANTIC)
    assert "pydantic" not in lightest.versions()
    assert size_mb(lightest.venv) <= MOST_MB
    log = PROJECT / "tests" / "explain" / "seeds" / "1_qwen_vl_oom_behind_timeout.log"
    ran = lightest.run("preflight-nccl", "explain", str(log), cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (1, "") and ran.stdout.startswith("FOUND")


def test_metadata_has_torch_in_its_extra_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        lines = packed.read(name).decode().splitlines()
    asked = [line for line in lines if line.startswith("Requires-Dist: torch")]
    assert "Requires-Dist: torch; extra == 'torch'" in asked
    assert all("extra == " in line for line in asked)


def test_without_torch_all_but_check_and_bench_works_by_either_name(light: Installed, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(render_json(report_of()))
    log = PROJECT / "tests" / "explain" / "seeds" / "1_qwen_vl_oom_behind_timeout.log"
    for argv, code in [
        (("explain", str(log)), 1), (("probe",), 0), (("capture",), 0), (("render", str(saved)), 0),
        (("fleet", str(saved)), 0), (("timeout", "--params", "7B"), 0), (("stuck", "--pid", str(os.getpid())), 3),
    ]:  # fmt: skip
        ran = light.run("preflight-nccl", *argv, cwd=tmp_path)
        assert ran.returncode == code, (argv, ran.stdout + ran.stderr)
        assert ran.stdout and "Traceback" not in ran.stderr
    for command in ("check", "bench"):
        ran = light.run("preflight", command, cwd=tmp_path, env={"TMPDIR": str(tmp_path)})
        assert (ran.returncode, ran.stderr) == (3, "")
        (line,) = ran.stdout.splitlines()
        assert "pip install 'preflight-nccl[torch]'" in line


def test_the_wheel_holds_the_package_and_nothing_else(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"preflight", "preflight_nccl"}
    sources = {str(path.relative_to(PROJECT)) for path in (PROJECT / "preflight").rglob("*.py")}
    folder = PROJECT / "preflight" / "show" / "templates"
    templates = {str(path.relative_to(PROJECT)) for path in folder.iterdir()}
    assert len(templates) == 4
    assert sources | templates | {"preflight/py.typed"} <= set(names)


def test_pip_leaves_the_torch_that_is_there(installed: Installed) -> None:
    versions = installed.versions()
    assert versions["torch"] == OLD_TORCH
    assert "preflight-nccl" in versions
    assert not [name for name in versions if name.startswith(("nvidia-cu", "nvidia-nccl", "triton"))]
    assert installed.run("python", "-m", "pip", "check").returncode == 0


def test_the_command_works_from_a_directory_that_is_not_writable(
    installed: Installed, need: Callable[[str, bool, str], None], tmp_path: Path
) -> None:
    mount = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none "$0" && cd "$0" && exec "$@"', str(tmp_path))
    need("mounts", installed.run(*mount, "true").returncode == 0, "mounting needs root")
    shown = installed.run(*mount, "preflight", "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "check" in shown.stdout
    probed = installed.run(*mount, "preflight", "probe", "--json", "-")
    assert (probed.returncode, probed.stderr) == (0, "")
    (node,) = json.loads(probed.stdout)["nodes"]
    assert node["software"]["torch"]["version"] == OLD_TORCH
    assert node["software"]["torch"]["location"].startswith(str(installed.venv))
    refused = installed.run(*mount, "preflight", "check")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "preflight: preflight.env: can't be written: read-only file system\n"


def test_probe_and_checks_print_80_plain_columns_into_a_pipe(installed: Installed) -> None:
    for command in ("probe", "checks"):
        page = installed.run("preflight", command, env={"NO_COLOR": "1", "COLUMNS": "80"}).stdout
        assert "\x1b" not in page
        assert max(map(len, page.splitlines())) <= 80


def test_a_saved_report_is_rendered_and_a_fleet_read_with_the_installed_templates(
    installed: Installed, tmp_path: Path
) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(render_json(report_of()))
    page = installed.run("preflight", "render", str(saved), "--format", "html")
    assert (page.returncode, page.stderr) == (0, "") and page.stdout.startswith("<!doctype html>")
    schema = installed.run("preflight", "schema")
    assert schema.returncode == 0 and "$schema" in json.loads(schema.stdout)
    fleet = installed.run("preflight", "fleet", str(saved), "--out", str(tmp_path))
    assert (fleet.returncode, fleet.stderr) == (0, "")
    assert (tmp_path / "fleet.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_torch_that_can_run_nothing_ends_with_3_and_is_named_in_one_line(
    installed: Installed, tmp_path: Path
) -> None:
    ran = installed.run("preflight", "check", "--backend", "gloo", cwd=tmp_path, env={"TMPDIR": str(tmp_path)})
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr
    report = json.loads((tmp_path / "preflight-report.json").read_text())
    assert report["verdict"] == "unknown"
    assert "No module named 'torch._C'" in report["headline"]
    assert "\n" not in report["headline"]
    assert not (tmp_path / "preflight.env").exists()


def test_it_runs_with_the_torch_of_these_tests_from_a_clean_venv_too(installed: Installed, tmp_path: Path) -> None:
    """The same wheel, with this Python's torch behind the venv's own packages instead of the stand-in."""
    copy = tmp_path / "packages"
    shutil.copytree(next(installed.venv.glob("lib/python*/site-packages")), copy)
    shutil.rmtree(copy / "torch")
    shutil.rmtree(copy / f"torch-{OLD_TORCH}.dist-info")
    torch = next(path for path in map(Path, sys.path) if (path / "torch" / "version.py").exists())
    env = {"PYTHONPATH": f"{copy}{os.pathsep}{torch}", "TMPDIR": str(tmp_path)}
    ran = installed.run("python", "-S", "-m", "preflight", "check", "--backend", "gloo", cwd=tmp_path, env=env)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads((tmp_path / "preflight-report.json").read_text())
    assert report["trials"][0]["outcome"] == "ok"
    assert (tmp_path / "preflight.env").exists()
