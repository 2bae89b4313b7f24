"""The JSON Schema (2020-12) of a record, from its dataclass: what `preflight schema` prints."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

from preflight.model.codec import GAPS
from preflight.model.facts import Gap, NodeFacts
from preflight.model.report import SCHEMA_VERSION, Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"
IDENTIFIER = f"urn:preflight:report:{SCHEMA_VERSION}"
SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}
GAP_LIST = {
    "type": "array",
    "description": "Facts that could not be read: their value is null, and this says why.",
    "items": {
        "type": "object",
        "properties": {"fact": {"type": "string"}, "reason": {"type": "string"}},
        "required": ["fact", "reason"],
    },
}


def report_schema() -> dict[str, Any]:
    """Return the schema of the report that `preflight check` writes.

    Keys that came later have a default and are not required, so that the reports of older releases are valid too; keys
    that are not named are allowed, so that those of newer ones are.
    """
    definitions: dict[str, Any] = {}
    root = _record(Report, definitions)
    root["properties"]["schema_version"] = {"type": "integer", "minimum": 1}
    root["properties"][GAPS] = GAP_LIST
    head = {"$schema": DIALECT, "$id": IDENTIFIER, "title": "preflight report"}
    return head | root | {"$defs": dict(sorted(definitions.items()))}


def _record(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    properties, required = {}, []
    for field in dataclasses.fields(kind):
        name = field.metadata.get("json", field.name)
        properties[name] = _value(hints[field.name], definitions)
        if field.default is dataclasses.MISSING:
            required.append(name)
    if kind is NodeFacts:
        properties[GAPS] = GAP_LIST
    about = {"description": _first_sentence(kind)}
    return about | {"type": "object", "properties": properties, "required": required}


def _value(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin = get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_value(each, definitions) for each in get_args(kind)]}
    if origin is tuple:
        return _array(get_args(kind)[0], definitions)
    if kind is Gap:
        return {"type": "null"}
    if dataclasses.is_dataclass(kind):
        return _named(typing.cast(type, kind), definitions, _record)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _named(kind, definitions, _closed_set)
    return {"type": SCALARS[kind]}


def _array(item: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return an array's schema; pairs are an object, as the codec writes them."""
    if get_origin(item) is tuple and Ellipsis not in get_args(item):
        return {"type": "object", "additionalProperties": _value(get_args(item)[1], definitions)}
    return {"type": "array", "items": _value(item, definitions)}


def _closed_set(kind: type[Enum], _definitions: dict[str, Any]) -> dict[str, Any]:
    return {"description": _first_sentence(kind), "enum": [member.value for member in kind]}


def _named(kind: type, definitions: dict[str, Any], make: Any) -> dict[str, Any]:
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}  # so that a record inside itself ends
        definitions[kind.__name__] = make(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _first_sentence(kind: type) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]
