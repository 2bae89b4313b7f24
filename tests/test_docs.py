"""What the pages and comments lead to is there: cited facts, linked files, the licence in what is released."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.model.toml import read_toml
from tests.conftest import PROJECT

FACTS = PROJECT / "docs" / "nccl-facts.md"
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{page.name}" for page in FACTS.parent.glob("*.md")))
SECTION = r"\d+(?:\.\d+)?"
CITED = re.compile(rf"\bfacts\s+({SECTION}(?:(?:,\s*|\s+(?:and|to)\s+){SECTION})*)")  # facts 1.0 to 1.5, 4.2
HEADING = re.compile(rf"^##+ ({SECTION})\.? ", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)>\s]+)")
ELSEWHERE = re.compile(r"[a-z]+:|#")  # a URL, or a place on the same page


def citations() -> Iterator[tuple[str, str]]:
    """Yield every file that cites the facts, with each section that it names."""
    for folder in ("preflight", "tests", "scripts"):
        for path in sorted((PROJECT / folder).rglob("*")):
            if path.suffix in (".py", ".c", ".sh", ".sbatch", ".toml") and path != Path(__file__):
                for cited in CITED.findall(path.read_text(encoding="utf-8")):
                    for section in re.findall(SECTION, cited):
                        yield str(path.relative_to(PROJECT)), section


def links(text: str) -> list[str]:
    """Return where the links of a page lead within the project, without code and without the place on the page."""
    found = LINK.findall(CODE.sub("", FENCED.sub("", text)))
    return [link.split("#")[0] for link in found if not ELSEWHERE.match(link)]


def test_every_fact_that_is_cited_is_a_section() -> None:
    cited, sections = set(citations()), set(HEADING.findall(FACTS.read_text(encoding="utf-8")))
    assert ("preflight/search/settings/environment.py", "1.5") in cited
    assert sorted((file, section) for file, section in cited if section not in sections) == []


def test_no_section_has_the_number_of_another() -> None:
    numbers = HEADING.findall(FACTS.read_text(encoding="utf-8"))
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    ("comment", "sections"),
    [
        ("(facts 7).", ["7"]),
        ("facts 1.0 to 1.5, 4.2)", ["1.0", "1.5", "4.2"]),
        ("facts 2.2 and 7.5; compared", ["2.2", "7.5"]),
        ("artefacts 3", []),
    ],
)
def test_a_citation_is_read_as_people_write_it(comment: str, sections: list[str]) -> None:
    assert [section for cited in CITED.findall(comment) for section in re.findall(SECTION, cited)] == sections


def test_a_link_in_code_or_to_elsewhere_leads_to_no_file() -> None:
    page = "[a](docs/a.md#x) `[b](b.md)` [c](https://c.invalid/c.md) [d](#d)\n```text\n[e](e.md)\n```\n"
    assert links(page) == ["docs/a.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_file_leads_to_one(page: str) -> None:
    path = PROJECT / page
    broken = [link for link in links(path.read_text(encoding="utf-8")) if not (path.parent / link).exists()]
    assert broken == []


def test_what_is_released_holds_the_licence_and_the_pages() -> None:
    settings = read_toml((PROJECT / "pyproject.toml").read_text(encoding="utf-8"), "pyproject.toml")
    released = settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert settings["project"]["license-files"] == ["LICENSE"]
    assert {"LICENSE", "CONTRIBUTING.md", "docs"} <= set(released)
    assert all((PROJECT / name).exists() for name in released)
    licence = (PROJECT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence and "Version 2.0, January 2004" in licence and "END OF TERMS" in licence
