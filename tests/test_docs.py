"""The pages of docs/ are fifteen, and three in Chinese: short, in plain English, and what they lead to is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.model.toml import read_toml
from tests.conftest import PROJECT

DOCS = PROJECT / "docs"
FACTS = DOCS / "dev" / "nccl-facts.md"
USER_PAGES = {
    "install.md", "check.md", "explain.md", "stuck.md", "run.md", "timeout.md", "accept.md", "fleet.md",
    "clusters.md", "python.md", "reference.md", "trust.md", "serving.md", "two-boxes.md",
    "beside-other-tools.md",
}  # fmt: skip
DEVELOPER_PAGES = {"architecture.md", "method.md", "testing.md", "nccl-facts.md"}
CHINESE_PAGES = {"check.md", "explain.md", "stuck.md"}
GENERATED_PAGES = {"commands.md", "checks.md", "causes.md", "numbers.md"}
IN_DOCS = tuple(sorted(str(page.relative_to(PROJECT)) for page in DOCS.rglob("*.md")))
PAGES = ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", *IN_DOCS)
PROSE = ("README.md", *IN_DOCS)
MOST_LINES, MOST_COLUMNS = 90, 120  # a row of a table is one line, however long
MOST_LONG_SENTENCES, LONG_SENTENCE = 10, 40  # words
AVOIDED = (
    "in vain", "for want of", "meanwhile", "afresh", "anew", "drawn by chance", "kin", "so many", "speaks for",
    "accuses", "the worst first", "told", "by itself",
)  # fmt: skip
SECTION = r"\d+(?:\.\d+)?"
CITED = re.compile(rf"\bfacts\s+({SECTION}(?:(?:,\s*|\s+(?:and|to)\s+){SECTION})*)")  # facts 1.0 to 1.5, 4.2
HEADING = re.compile(rf"^##+ ({SECTION})\.? ", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}.*$", re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
SPAN = re.compile(r"`[^`]*`")
LINK = re.compile(r"\]\(\s*<?([^)>\s]+)")
TARGET = re.compile(r"\]\([^)]*\)|<https?:[^>]*>")
ELSEWHERE = re.compile(r"[a-z]+:")  # a URL
TITLE = re.compile(r"^#+ (.*)$", re.MULTILINE)
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=#)|\|")  # or an item, a title, a cell of a table
END = re.compile(r"(?<=[.?!])[)\"*]*\s+(?=\S)")
WORD = re.compile(r"\S*\w\S*")


def citations() -> Iterator[tuple[str, str]]:
    """Yield every file that cites the facts, with each section that it names."""
    for folder in ("preflight", "tests", "scripts"):
        for path in sorted((PROJECT / folder).rglob("*")):
            if path.suffix in (".py", ".c", ".sh", ".sbatch", ".toml") and path != Path(__file__):
                for cited in CITED.findall(path.read_text(encoding="utf-8")):
                    for section in re.findall(SECTION, cited):
                        yield str(path.relative_to(PROJECT)), section


def links(text: str) -> list[str]:
    """Return where the links of a page lead within the project, without code."""
    found = LINK.findall(CODE.sub("", FENCED.sub("", text)))
    return [link for link in found if not ELSEWHERE.match(link)]


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives the titles of a page."""
    titles = TITLE.findall(FENCED.sub("", text))
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def prose(text: str) -> str:
    """Return a page without its code: a span of code is one word."""
    return SPAN.sub("`code`", TARGET.sub("]", INDENTED.sub("", FENCED.sub("", text))))


def sentences(text: str) -> list[str]:
    """Return the sentences of a page; an item of a list, a title and a cell of a table end one as well."""
    parts = PARAGRAPH.split(TITLE.sub(r"\g<0>\n", prose(text)))
    return [each for part in parts for each in END.split(part.strip()) if WORD.search(each)]


def read(page: str) -> str:
    return (PROJECT / page).read_text(encoding="utf-8")


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
    assert links(page) == ["docs/a.md#x", "#d"]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_title_of_it(page: str) -> None:
    broken = []
    for link in links(read(page)):
        name, _, anchor = link.partition("#")
        path = (PROJECT / page).parent / name if name else PROJECT / page
        if not path.exists() or (anchor and anchor not in anchors(path.read_text(encoding="utf-8"))):
            broken.append(link)
    assert broken == []


def test_an_anchor_is_what_github_makes_of_a_title() -> None:
    page = "# A job: `preflight stuck`, now\n## stuck: NCCL's RAS\n```sh\n# no title\n```\n"
    assert anchors(page) == {"a-job-preflight-stuck-now", "stuck-nccls-ras"}


def test_there_are_fourteen_pages_for_users_four_for_developers_and_four_generated_ones() -> None:
    assert {page.name for page in DOCS.glob("*.md")} == USER_PAGES
    assert {page.name for page in (DOCS / "dev").iterdir()} == DEVELOPER_PAGES
    assert {page.name for page in (DOCS / "reference").iterdir()} == GENERATED_PAGES
    assert {page.name for page in (DOCS / "zh").iterdir()} == CHINESE_PAGES
    assert len(IN_DOCS) == sum(map(len, (USER_PAGES, DEVELOPER_PAGES, GENERATED_PAGES, CHINESE_PAGES)))


@pytest.mark.parametrize("page", sorted(USER_PAGES) + [f"zh/{name}" for name in sorted(CHINESE_PAGES)])
def test_a_page_for_users_is_read_in_two_minutes(page: str) -> None:
    lines = read(f"docs/{page}").splitlines()
    assert len(lines) <= MOST_LINES
    assert [line for line in lines if len(line) > MOST_COLUMNS and not line.startswith("|")] == []


@pytest.mark.parametrize("page", PROSE)
def test_no_page_has_a_word_that_is_avoided(page: str) -> None:
    words = " ".join(prose(read(page)).lower().split())
    assert [each for each in AVOIDED if re.search(rf"\b{each}\b", words)] == []


def test_a_condition_says_if() -> None:
    text = " ".join(prose(read(page)).lower() for page in PROSE)
    assert len(re.findall(r"\bwhere\b", text)) <= len(re.findall(r"\bif\b", text))


def test_a_span_of_code_is_one_word_of_a_sentence() -> None:
    page = "# A title\nOne `a. b`\nsentence. Two (it says so.) Three\n- four\n\n| five | six. Seven |\n\n    no prose\n"
    expected = ["# A title", "One `code`\nsentence.", "Two (it says so.", "Three", "- four", "five", "six.", "Seven"]
    assert sentences(page) == expected


def test_few_sentences_are_long() -> None:
    found = [each for page in PROSE for each in sentences(read(page)) if len(WORD.findall(each)) > LONG_SENTENCE]
    assert len(found) <= MOST_LONG_SENTENCES, found


def test_what_is_released_holds_the_licence_and_the_pages() -> None:
    settings = read_toml((PROJECT / "pyproject.toml").read_text(encoding="utf-8"), "pyproject.toml")
    released = settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert settings["project"]["license-files"] == ["LICENSE"]
    assert {"LICENSE", "CONTRIBUTING.md", "docs"} <= set(released)
    assert all((PROJECT / name).exists() for name in released)
    licence = (PROJECT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence and "Version 2.0, January 2004" in licence and "END OF TERMS" in licence


@pytest.mark.parametrize("name", sorted(CHINESE_PAGES))
def test_a_chinese_page_has_the_words_and_exit_codes_of_the_english_one(name: str) -> None:
    """Of each verdict that `docs/reference.md` lists for the command, the Chinese glossary has the words."""
    command, page = name.removesuffix(".md"), read(f"docs/zh/{name}")
    rows = [line.split("|") for line in read("docs/reference.md").splitlines() if line.startswith("| ")]
    listed, current = [], ""
    for row in rows:
        current = row[1].strip() or current
        if len(row) > 5 and f"`{command}" in current and row[2].strip().isupper():
            listed += [word.strip() for word in row[2].split(",") if "STILL" not in row[2]]
    assert listed and [word for word in listed if word.rpartition(" ")[2] not in page] == []
    assert "打印的词" in page and f"](../{name})" in page


def test_what_is_not_verified_stands_in_both_languages() -> None:
    assert "Nothing has run on a real GPU yet" in read("README.md")
    assert "还没有在任何真实 GPU 上运行过" in read("README.zh-CN.md") and "还没有在任何真实 GPU 上运行过" in read(
        "docs/zh/check.md"
    )
    (share,) = re.findall(r"closely related in ([\d.]+)%", read("docs/explain.md"))
    assert f"{share}%" in read("docs/zh/explain.md") and f"{share}%" in read("README.zh-CN.md")
    (causes,) = re.findall(r"\[(\d+) causes\]", read("docs/explain.md"))
    assert f"{causes} 种" in read("docs/zh/explain.md")
