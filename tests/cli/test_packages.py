"""What is released: the files of `make dist`, the lock, a folder of wheels for no network, both Containerfiles."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from preflight import __version__
from preflight.model.toml import read_toml
from preflight.show.json_document import render_json
from scripts.lock_wheels import LOCK, PYTHONS, locked
from scripts.try_pairs import PAIRS
from tests.cli.test_wheel import OLD_TORCH, torch_wheel
from tests.conftest import PROJECT
from tests.reports import report_of

README = (PROJECT / "README.md").read_text(encoding="utf-8")
PAGE = (PROJECT / "docs" / "install.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent
LINES = [line.partition(" #")[0].strip() for line in PAGE.splitlines() if line.startswith("    ")]
SLIM = PROJECT / "Containerfile.slim"


def instructions(name: str) -> list[tuple[str, str]]:
    """Return the instructions of a Containerfile with their words, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (PROJECT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", "").splitlines()
    return [(words[0], words[1]) for words in (line.split(maxsplit=1) for line in lines if line.strip())]


def wanted() -> dict[str, Requirement]:
    """Return what preflight needs, and what its extras do but torch."""
    settings = read_toml((PROJECT / "pyproject.toml").read_text(encoding="utf-8"), "pyproject.toml")
    project = settings["project"]
    extras = [each for name in ("stacks", "fast", "html", "zstd") for each in project["optional-dependencies"][name]]
    return {each.name: each for each in map(Requirement, (*project["dependencies"], *extras))}


def test_the_lock_holds_every_dependency_but_torch_with_hashes_and_names_no_host() -> None:
    text = LOCK.read_text(encoding="utf-8")
    packages = locked(text)
    by_name = {each.name: each for each in packages}
    assert set(wanted()) - set(by_name) == set() and "torch" not in by_name
    assert all(each.hashes for each in packages)
    assert all(each.version in wanted()[each.name].specifier for each in packages if each.name in wanted())
    assert "://" not in text
    for python in PYTHONS:
        names = [each.name for each in packages if each.is_for(python, "aarch64")]
        assert len(names) == len(set(names)), "one release of each for a Python"


def test_a_lock_is_read_with_its_markers() -> None:
    text = "# by\na==1 ; python_full_version < '3.11' \\\n    --hash=sha256:" + "0" * 64 + "\n    # via b\nb==2\n"
    first, second = locked(text)
    assert (first.name, first.version, len(first.hashes), second.version) == ("a", "1", 1, "2")
    assert [first.is_for(python, "x86_64") for python in ("3.10", "3.11")] == [True, False]


def test_the_five_pairs_span_what_is_promised() -> None:
    pairs = [tuple(tuple(map(int, part.split("."))) for part in pair.split("=")) for pair in PAIRS]
    assert len(pairs) == 5
    assert {python for python, _ in pairs} == {(3, 10), (3, 11), (3, 12), (3, 13)}
    assert [end(torch[:2] for _, torch in pairs) for end in (min, max)] == [(2, 4), (2, 15)]


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.slim"])
def test_a_containerfile_lints_and_copies_what_is_there_and_let_through(name: str) -> None:
    ran = subprocess.run([BIN / "hadolint", PROJECT / name], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "")
    let_through = [
        line.removeprefix("!") for line in (PROJECT / ".dockerignore").read_text().splitlines() if line != "*"
    ]
    copied = [word for kind, words in instructions(name) if kind == "COPY" for word in words.split()[:-1]]
    assert copied
    for source in copied:
        assert any(fnmatch.fnmatch(source, pattern) for pattern in let_through), source
        assert source == "dist/*.whl" or (PROJECT / source).exists(), source
    (start,) = [words for kind, words in instructions(name) if kind == "FROM"]
    assert "." not in start.rpartition("/")[0].partition("/")[0], "no registry is named"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run `make wheelhouse`, which runs `make dist`; return the folder that it was run in."""
    folder = tmp_path_factory.mktemp("house")
    make = ["make", "-C", str(PROJECT), "-o", ".venv/.installed", "wheelhouse", f"BIN={BIN}"]
    ran = subprocess.run(
        [*make, f"DIST={folder}/dist", f"WHEELHOUSE={folder}/wheelhouse"],
        capture_output=True, text=True, check=False, timeout=500, env=os.environ | {"NO_COLOR": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    (folder / "said").write_text(ran.stdout)
    return folder


def in_venv(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in a clean environment of its own that reaches no package index."""
    if not (folder / "venv").exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=300)
    env = {"PATH": f"{folder}/venv/bin:/usr/bin:/bin", "HOME": str(folder), "PIP_NO_INDEX": "1", "TMPDIR": str(folder)}
    env |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_FIND_LINKS": str(folder / "wheelhouse")}
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )


def installed(folder: Path) -> dict[str, str]:
    listed = json.loads(in_venv(folder, "python -m pip list --format json").stdout)
    return {each["name"].lower(): each["version"] for each in listed}


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_twine_and_check_wheel_contents_pass_the_files_that_are_released(house: Path) -> None:
    names = sorted(path.name for path in (house / "dist").iterdir())
    assert names == [f"preflight_nccl-{__version__}-py3-none-any.whl", f"preflight_nccl-{__version__}.tar.gz"]
    said = (house / "said").read_text()
    assert said.count("PASSED") == 2 and said.count(".whl: OK") == 1


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_the_slim_image_s_run_installs_from_the_wheelhouse_and_works_without_torch(house: Path, tmp_path: Path) -> None:
    shutil.copytree(house / "wheelhouse", tmp_path / "wheelhouse")
    (run,) = [words for kind, words in instructions(SLIM.name) if kind == "RUN"]
    ran = in_venv(tmp_path, run.replace("/opt/preflight", "wheelhouse"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "torch" not in installed(tmp_path)
    assert set(wanted()) - {"tomli"} <= set(installed(tmp_path))
    log = PROJECT / "tests" / "explain" / "seeds" / "1_qwen_vl_oom_behind_timeout.log"
    saved = tmp_path / "saved.json"
    saved.write_text(render_json(report_of()))
    for line, code, says in [
        (f"preflight render {saved} --format html", 0, "<!doctype html>"), (f"preflight explain {log}", 1, ""),
        (f"preflight fleet {saved} --out out", 0, ""), ("preflight timeout --params 7B", 0, ""),
    ]:  # fmt: skip
        ran = in_venv(tmp_path, line)
        assert (ran.returncode, ran.stderr) == (code, ""), line + ran.stdout + ran.stderr
        assert says in ran.stdout


@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("has_torch", "is_hashed"), [(True, False), (False, False), (False, True)])
def test_the_lines_for_no_network_install_it_beside_a_torch_and_without(
    house: Path, tmp_path: Path, has_torch: bool, is_hashed: bool
) -> None:
    unpack, plain, *hashed = [line for line in LINES if "--no-index" in line or line.startswith("tar ")]
    assert plain in README and len(hashed) == 2
    shutil.copy(house / "wheelhouse.tar.gz", tmp_path)
    assert in_venv(tmp_path, unpack).returncode == 0
    if has_torch:
        (tmp_path / "torch").mkdir()
        assert in_venv(tmp_path, f"pip install {torch_wheel(tmp_path / 'torch')}").returncode == 0
    for line in hashed if is_hashed else [plain]:
        ran = in_venv(tmp_path, line)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert installed(tmp_path).get("torch") == (OLD_TORCH if has_torch else None)
    assert installed(tmp_path)["preflight-nccl"] == __version__
    probed = in_venv(tmp_path, 'python -c "import preflight; preflight.probe()"')
    assert (probed.returncode, probed.stderr) == (0, "")


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_every_locked_package_has_a_wheel_for_64_bit_arm() -> None:
    script = [sys.executable, "-m", "scripts.lock_wheels", "3.12"]
    ran = subprocess.run(script, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=280)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {line.split(" | ")[0].strip("| ") for line in ran.stdout.splitlines()[2:]} >= set(wanted())
