"""docs/install.md names every dependency, docs/dev/ every long file and every pair of Python and torch that was run."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from packaging.requirements import Requirement

from preflight.model.toml import read_toml
from scripts.try_pairs import PAIRS
from tests.conftest import PROJECT

PAGE = (PROJECT / "docs" / "install.md").read_text(encoding="utf-8")
ARCHITECTURE = (PROJECT / "docs" / "dev" / "architecture.md").read_text(encoding="utf-8")
RELEASING = (PROJECT / "docs" / "dev" / "testing.md").read_text(encoding="utf-8")
README = (PROJECT / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([^`]+)` \|(.*)\|$", re.MULTILINE)
LONG = 150  # lines
EXTRAS = ("torch", "stacks", "fast", "html", "zstd")  # the others are for who develops preflight
OWN = "preflight-nccl"  # an extra may hold others
# The modules of a dependency, where they have another name.
MODULES = {"nvidia-ml-py": "pynvml", "netifaces2": "netifaces", "google-re2": "re2"}


def rows(text: str) -> dict[str, list[str]]:
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in ROW.findall(text)}


def dependencies() -> set[str]:
    settings = read_toml((PROJECT / "pyproject.toml").read_text(encoding="utf-8"), "pyproject.toml")
    project = settings["project"]
    extras = [each for name in EXTRAS for each in project["optional-dependencies"][name]]
    return {Requirement(each).name for each in (*project["dependencies"], *extras)} - {OWN}


def imported(path: Path) -> set[str]:
    """Return the top modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_every_dependency_is_on_the_page_with_why_size_start_wheel_and_licence() -> None:
    table = rows(PAGE.partition("## Dependencies")[2])
    assert set(table) == dependencies()
    assert all(len(cells) == 5 and all(cells) for cells in table.values())


def test_the_page_and_the_readme_name_every_extra_and_nothing_requires_what_an_extra_brings() -> None:
    project = read_toml((PROJECT / "pyproject.toml").read_text(encoding="utf-8"), "pyproject.toml")["project"]
    extras = project["optional-dependencies"]
    required = {Requirement(each).name for each in project["dependencies"]}
    for extra in EXTRAS:
        names = {Requirement(each).name for each in extras[extra]} - {OWN}
        assert not names & required
        assert all(cells[0].startswith(f"`[{extra}]`: ") for name, cells in rows(PAGE).items() if name in names)
        assert f"[{extra}]" in README and f"[{extra}]" in PAGE


def test_all_is_every_extra_but_torch_and_torch_brings_what_check_and_stuck_need() -> None:
    project = read_toml((PROJECT / "pyproject.toml").read_text(encoding="utf-8"), "pyproject.toml")["project"]
    extras = {name: list(map(Requirement, each)) for name, each in project["optional-dependencies"].items()}
    assert [each.extras for each in extras["all"]] == [{*EXTRAS} - {"torch"}]
    assert [(each.name, each.extras, str(each.specifier)) for each in extras["torch"]] == [
        (OWN, {"stacks", "fast"}, ""), ("torch", set(), ""),
    ]  # fmt: skip


def test_every_long_file_is_on_the_page_with_why_no_library_does_it() -> None:
    long = {
        str(path.relative_to(PROJECT / "preflight"))
        for folder in ("system", "show", "model")
        for path in (PROJECT / "preflight" / folder).glob("**/*.py")
        if len(path.read_text(encoding="utf-8").splitlines()) > LONG
    }
    table = rows(ARCHITECTURE.partition("## Long files")[2].partition("\n## ")[0])
    assert long - set(table) == set()
    assert {name for name in table if not (PROJECT / "preflight" / name).exists()} == set()
    assert all(len(cells) == 1 and cells[0] for cells in table.values())


def test_what_is_imported_is_declared() -> None:
    files = (PROJECT / "preflight").glob("**/*.py")
    own = {"preflight", "preflight_nccl", "__future__"}
    others = set().union(*map(imported, files)) - set(sys.stdlib_module_names) - own
    assert others - {"tomllib"} <= {MODULES.get(name, name) for name in dependencies()}


def test_every_pair_of_python_and_torch_that_was_run_is_in_the_table() -> None:
    ran = re.findall(r"^\| (3\.\d+)\.\d+ \| (\d+\.\d+\.\d+) \| yes \| 0 \| 0 \| 0 \|", RELEASING, re.MULTILINE)
    assert {"=".join(pair) for pair in ran} == set(PAIRS)
