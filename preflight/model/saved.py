"""A saved report, of this release or of an older one, back as a record."""

from __future__ import annotations

import json

from preflight.errors import MalformedInput
from preflight.model.codec import decode
from preflight.model.report import SCHEMA_VERSION, Report

VERSION = "schema_version"


def load_report(text: str, name: str = "the report") -> Report:
    """Return the report that a text holds; MalformedInput in one line, beginning with `name`, where it holds none.

    Keys of a later release are ignored and those that an older one lacked get their default; a schema_version above
    ours is refused, since its keys may mean something else.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedInput(f"{name}: not JSON: {_reason(error, text)}") from None
    if not isinstance(document, dict) or VERSION not in document:
        raise MalformedInput(f"{name}: no report: it has no {VERSION!r}; give what `preflight check` wrote")
    _check_version(document[VERSION], name)
    if "verdict" not in document and "nodes" in document:
        raise MalformedInput(f"{name}: facts without a verdict, as `preflight probe` writes them, not a report")
    try:
        return decode(Report, document)
    except MalformedInput as error:
        raise MalformedInput(f"{name}: no report that can be read: {error}") from None
    except RecursionError:
        raise MalformedInput(f"{name}: no report: it is nested too deeply") from None


def _check_version(version: object, name: str) -> None:
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise MalformedInput(f"{name}: no report: its {VERSION} is no positive whole number")
    if version > SCHEMA_VERSION:
        # The number may have thousands of digits, which Python refuses to print.
        told = str(version) if version < 10**9 else "a larger one"
        raise MalformedInput(
            f"{name}: schema_version is {told}, and this preflight reads up to {SCHEMA_VERSION}: use a newer preflight"
        )


def _reason(error: ValueError | RecursionError, text: str) -> str:
    if not text.strip():
        return "it is empty"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, line {error.lineno} column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
