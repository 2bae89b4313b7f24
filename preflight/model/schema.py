"""Derive the JSON Schema (2020-12) of a record from its dataclass, for `preflight schema`."""

from __future__ import annotations

from typing import Any

from preflight.model.codec import GAPS
from preflight.model.facts import NodeFacts
from preflight.model.report import SCHEMA_VERSION, Report
from preflight.model.shape import Form, fields_of, shape_of
from preflight.model.stuck import StuckReport
from preflight.model.stuck_evidence import SCHEMA_VERSION as STUCK_VERSION

DIALECT = "https://json-schema.org/draft/2020-12/schema"
IDENTIFIER = f"urn:preflight:report:{SCHEMA_VERSION}"
STUCK_IDENTIFIER = f"urn:preflight:stuck:{STUCK_VERSION}"
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
    """Return the schema of the report that `preflight check` writes."""
    return schema_of(Report, IDENTIFIER, "preflight report")


def stuck_schema() -> dict[str, Any]:
    """Return the schema of the document that `preflight stuck --json` writes."""
    return schema_of(StuckReport, STUCK_IDENTIFIER, "preflight stuck")


def schema_of(kind: type, identifier: str, title: str) -> dict[str, Any]:
    """Return the JSON schema of a document that holds a record of the type `kind`.

    Keys with a default are not required, and additional keys are allowed.
    """
    # `identifier` and `title` are the values of `$id` and `title`.
    definitions: dict[str, Any] = {}
    root = _described(kind, _record(kind, definitions))
    root["properties"]["schema_version"] = {"type": "integer", "minimum": 1}
    root["properties"][GAPS] = GAP_LIST
    head = {"$schema": DIALECT, "$id": identifier, "title": title}
    return head | root | {"$defs": dict(sorted(definitions.items()))}


def _record(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    fields = fields_of(kind)
    properties = {field.json: _value(field.kind, definitions) for field in fields}
    if kind is NodeFacts:
        properties[GAPS] = GAP_LIST
    required = [field.json for field in fields if not field.has_default]
    return {"type": "object", "properties": properties, "required": required}


def _value(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    form, parts = shape_of(kind)
    if form is Form.UNION:
        return {"anyOf": [_value(each, definitions) for each in parts]}
    if form is Form.ARRAY:
        return {"type": "array", "items": _value(parts[0], definitions)}
    if form is Form.PAIRS:
        return {"type": "object", "additionalProperties": _value(parts[1], definitions)}
    if form in (Form.RECORD, Form.ENUM):
        return _named(kind, form, definitions)
    return {"type": "null" if form is Form.GAP else SCALARS[str if form is Form.TEXT else kind]}


def _named(kind: Any, form: Form, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}  # so that a record inside itself ends
        made = _record(kind, definitions) if form is Form.RECORD else {"enum": [member.value for member in kind]}
        definitions[kind.__name__] = _described(kind, made)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _described(kind: type, made: dict[str, Any]) -> dict[str, Any]:
    return {"description": (kind.__doc__ or "").strip().partition("\n")[0]} | made
