"""Every printed text and every docstring keeps to the words of the project's style: plain, standard, one per thing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import PROJECT

GOLDEN = PROJECT / "tests" / "golden"
HELP = PROJECT / "docs" / "reference" / "commands.md"
AVOIDED = (
    "told", "seen", "met", "in vain", "for want of", "by itself", "meanwhile", "beside", "afresh", "anew",
    "drawn by chance", "kin", "so many", "speaks? for", "accus(?:e|es|ed|ing)", "doing", "the worst first",
)  # fmt: skip
PRIVATE = (
    "safe corner", "waited in vain", "waits? in vain", "odd ones?", "stands? out", "learnt", "meeting point",
    "could not look", "can't look", "stage first",
)  # fmt: skip
# In print only: the code's own comments and names may say "as-is" of the candidate of that name.
PRIVATE_IN_PRINT = (
    "echoes",
    "the default (?:fails?|works?|hangs?|hung)",
    "saving",
    "in a save",
    "no known cure",
    "cures?",
    "steady",  # no run is long enough to know
)
SLIPS = (r"\b1 (?:lines|ranks|nodes|reports|files|pairs|checks|values|sizes|runs|times)\b", r"\d %")
WORDS = re.compile(rf"\b(?:{'|'.join((*AVOIDED, *PRIVATE))})\b", re.IGNORECASE)
IN_PRINT = re.compile(rf"\b(?:{'|'.join((*AVOIDED, *PRIVATE, *PRIVATE_IN_PRINT))})\b|{'|'.join(SLIPS)}", re.IGNORECASE)
OUTSIDE = (
    "condition met:",  # Kubernetes
    "saving checkpoint at iteration", "saving a checkpoint", "saved",  # frameworks
)  # fmt: skip
PATTERN = re.compile(r"\\[dwsSbn]|\(\?|\[\^|\{\d")  # a text that is matched against what other programs print
MOST_WORDS, MOST_LONG = 40, 10


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def sources() -> list[Path]:
    return sorted((PROJECT / "preflight").rglob("*.py"))


def docstrings(path: Path) -> Iterator[ast.Constant]:
    for node in nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value


@cache
def texts(path: Path) -> tuple[tuple[int, str], ...]:
    """Return the literals of three words and more that are no docstring and no pattern; `…` is what is filled in."""
    found = []
    inner = {id(part) for node in nodes(path) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    skipped = {id(each) for each in docstrings(path)}
    for node in nodes(path):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (inner | skipped):
            text = node.value
        else:
            continue
        if len(text.split()) >= 3 and not PATTERN.search(text):
            found.append((node.lineno, text))
    return tuple(found)


def shown(path: Path, line: int, text: str) -> str:
    return f"{path.relative_to(PROJECT)}:{line}: {' '.join(text.split())[:160]}"


def bad_words(text: str, pattern: re.Pattern[str]) -> list[str]:
    for quoted in OUTSIDE:
        text = text.replace(quoted, "")
    return pattern.findall(
        re.sub(r"`[^`]*`", "", " ".join(text.split())) if pattern is WORDS else " ".join(text.split())
    )


def pages() -> list[Path]:
    return sorted(each for each in GOLDEN.rglob("*.txt") if each.name != "answers.txt")  # it quotes logs


def own_lines(page: Path) -> str:
    """Return a page without the lines that it quotes from a log."""
    return "\n".join(line for line in page.read_text(encoding="utf-8").splitlines() if not line.strip().startswith("|"))


@pytest.mark.parametrize("page", [pytest.param(each, id=str(each.relative_to(GOLDEN))) for each in pages()])
def test_a_page_has_no_word_to_avoid_and_no_plural_of_one(page: Path) -> None:
    assert bad_words(own_lines(page), IN_PRINT) == []


def test_no_text_in_the_code_has_a_word_to_avoid() -> None:
    found = [shown(path, *text) for path in sources() for text in texts(path) if bad_words(text[1], IN_PRINT)]
    assert found == [], "\n".join(found)


def test_the_help_has_no_word_to_avoid() -> None:
    assert bad_words(HELP.read_text(encoding="utf-8"), IN_PRINT) == []


def test_no_docstring_has_a_word_to_avoid() -> None:
    found = [
        shown(path, each.lineno, f"{bad} {each.value!s}")
        for path in sources()
        for each in docstrings(path)
        if (bad := bad_words(str(each.value), WORDS))
    ]
    assert found == [], "\n".join(found)


def test_a_docstring_of_a_predicate_says_return_whether() -> None:
    found = [shown(path, each.lineno, str(each.value)) for path in sources() for each in docstrings(path)]
    assert (found := [each for each in found if ": Tell whether" in each]) == [], "\n".join(found)


@pytest.mark.parametrize("where", ["help", "code"])
def test_conditions_begin_with_if_and_where_is_for_places(where: str) -> None:
    printed = " ".join(text for path in sources() for _, text in texts(path))
    said = HELP.read_text(encoding="utf-8") if where == "help" else printed
    assert len(re.findall(r"\bwhere\b", said, re.IGNORECASE)) <= len(re.findall(r"\bif\b", said, re.IGNORECASE))


def test_few_printed_sentences_are_long() -> None:
    found = [
        shown(path, line, sentence)
        for path in sources()
        for line, text in texts(path)
        for sentence in re.split(r"[.;:!?](?:\s|$)", text)
        if len(sentence.split()) > MOST_WORDS
    ]
    assert len(found) <= MOST_LONG, "\n".join(found)
