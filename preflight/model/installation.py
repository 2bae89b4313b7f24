"""The result of `preflight doctor`: whether preflight is installed correctly."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.word import Word

SCHEMA_VERSION = 1
HTML_MODULES = ("jinja2", "markupsafe", "pygal")  # what pages of HTML need: the extra [html]


class Soundness(Word):
    """The state of a part of the installation."""

    OK = "ok"
    NOTE = "note"  # something does less than it could
    PROBLEM = "problem"  # an answer of preflight could be wrong or missing


@dataclass(frozen=True, slots=True)
class InstalledPart:
    """A part of the installation, or of the machine that preflight needs."""

    name: str
    state: Soundness
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Installation:
    """All parts of an installation, and the exit code."""

    schema_version: int
    exit_code: int  # 0 sound, 3 a part is a problem
    parts: tuple[InstalledPart, ...]

    @classmethod
    def of(cls, parts: tuple[InstalledPart, ...]) -> Installation:
        """Return the installation with these parts. The exit code is 3 if a part is missing or faulty."""
        is_sound = all(part.state is not Soundness.PROBLEM for part in parts)
        return cls(SCHEMA_VERSION, 0 if is_sound else 3, parts)
