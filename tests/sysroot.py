"""Build a machine's files below a temporary folder, and answer its questions with fixed values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from preflight.system.machine import Json, Tree


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str


def build(root: Path, files: Mapping[str, str | bytes | Link], answers: Mapping[str, Json] | None = None) -> Tree:
    """Write the files below `root`; a path that ends in `/` is an empty directory. Return the machine."""
    for path, content in files.items():
        place = root / path
        if path.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        match content:
            case Link(target):
                os.symlink(target, place)
            case bytes():
                place.write_bytes(content)
            case str():
                place.write_text(content + "\n", encoding="utf-8")
    return answering(Tree(root), answers or {})


def answering(tree: Tree, answers: Mapping[str, Json]) -> Tree:
    """Return the machine with answers to questions."""
    return Tree(tree.root, {question: Fixed(answer).get for question, answer in answers.items()})


@dataclass(frozen=True, slots=True)
class Fixed:
    """A question whose answer is known."""

    answer: Json = field(default=None)

    def get(self) -> Json:
        return self.answer
