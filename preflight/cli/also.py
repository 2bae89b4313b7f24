"""`--also FORMAT=FILE`: which forms of the report are written where, beside those that have an option of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from preflight.errors import UsageError

if TYPE_CHECKING:
    from preflight.render.formats import Format

OWN_OPTION = {"env": "--env-out", "json": "--report"}


def parse_also(given: Sequence[str], taken: Sequence[str]) -> tuple[tuple[Format, str], ...]:
    """Return the forms and their files; UsageError where one is unknown, or where two results go to one file."""
    from preflight.render.formats import Format  # noqa: PLC0415

    seen = {os.path.realpath(path) for path in taken}
    forms = []
    for each in given:
        name, equals, path = each.partition("=")
        if name in OWN_OPTION:
            raise UsageError(f"--also {each}: {name} has an option of its own, {OWN_OPTION[name]}")
        if not equals or name not in [form.value for form in Format]:
            known = ", ".join(form.value for form in Format if form.value not in OWN_OPTION)
            raise UsageError(f"--also {each}: give FORMAT=FILE, with one of {known}")
        if path in ("", "-"):
            raise UsageError(f"--also {each}: give a file; stdout is for the page")
        if os.path.realpath(path) in seen:
            raise UsageError(f"--also {each}: another result goes to {path} already")
        seen.add(os.path.realpath(path))
        forms.append((Format(name), path))
    return tuple(forms)
