"""Records to JSON values and back.

A record becomes an object, a tuple an array, an enum its value, and pairs (`tuple[tuple[K, V], ...]`) an object.
A Gap becomes null; its path and reason stand in the `gaps` array of the outermost record, and in that of the
NodeFacts around it, where others look for them. A field may have another name in JSON (`metadata={"json": ...}`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import reprlib
import types
import typing
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from preflight.errors import MalformedInput
from preflight.model.facts import Gap, NodeFacts

T = TypeVar("T")

GAPS = "gaps"
OLDER = "not recorded: written by an older preflight, which did not know of it"
VALUE = "value"
PLAIN = frozenset({int, float, str, bool})  # JSON has the same; most of what a report of thousands of ranks holds


def encode(record: object) -> dict[str, Any]:
    """Return the JSON object of a record, with its `gaps`."""
    gaps: list[dict[str, str]] = []
    encoded = _encode(record, "", gaps)
    if not isinstance(encoded, dict):
        raise TypeError(f"only records can be encoded, not {type(record).__name__}")
    encoded[GAPS] = gaps
    return encoded


def decode(kind: type[T], value: object) -> T:
    """Return the record of type `kind` that a JSON object describes; MalformedInput names the first wrong path.

    Keys that the record does not know are ignored, so that a newer report still loads. A key that an older report lacks
    is given its default, or is a Gap where a Gap is allowed.
    """
    reasons = _gap_reasons(value)
    return typing.cast(T, _decode(kind, value, "", reasons))


def encode_value(value: object) -> dict[str, Any]:
    """Return a JSON object that holds any fact: a record, a tuple of records, a scalar or a Gap."""
    gaps: list[dict[str, str]] = []
    return {VALUE: _encode(value, VALUE, gaps), GAPS: gaps}


def decode_value(kind: Any, document: object) -> Any:
    """Return the fact of type `kind` that `encode_value` wrote; MalformedInput where the object is not such a fact."""
    if not isinstance(document, dict) or VALUE not in document:
        raise _wrong("", f"an object with the key {VALUE!r}", document)
    return _decode(kind, document[VALUE], VALUE, _gap_reasons(document))


def _encode(value: object, path: str, gaps: list[dict[str, str]]) -> Any:
    if isinstance(value, Gap):
        gaps.append({"fact": path, "reason": value.reason})
        return None
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own: list[dict[str, str]] = []
        start = "" if isinstance(value, NodeFacts) else path
        fields = _fields(type(value))
        encoded = {}
        for name, json, _ in fields:
            item = getattr(value, name)
            encoded[json] = item if type(item) in PLAIN else _encode(item, _join(start, json), own)
        if isinstance(value, NodeFacts):
            encoded[GAPS] = own
            own = [{"fact": _join(path, gap["fact"]), "reason": gap["reason"]} for gap in own]
        gaps.extend(own)
        for name, json, kind in fields:
            if _is_pairs(kind):
                encoded[json] = {str(key): item for key, item in getattr(value, name)}
        return encoded
    if isinstance(value, tuple):
        return [_encode(item, f"{path}[{i}]", gaps) for i, item in enumerate(value)]
    return value


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((f.name, f.metadata.get("json", f.name), hints[f.name]) for f in dataclasses.fields(kind))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@functools.cache
def _is_pairs(kind: Any) -> bool:
    item = get_args(kind)[0] if get_origin(kind) is tuple else None
    return get_origin(item) is tuple and Ellipsis not in get_args(item)


def _gap_reasons(value: object) -> dict[str, str]:
    listed = value.get(GAPS) if isinstance(value, dict) else None
    if not isinstance(listed, list):
        return {}
    pairs = [(gap.get("fact"), gap.get("reason")) for gap in listed if isinstance(gap, dict)]
    return {fact: reason for fact, reason in pairs if isinstance(fact, str) and isinstance(reason, str)}


def _decode(kind: Any, value: object, path: str, reasons: dict[str, str]) -> object:
    shape = _shape(kind)
    if shape == "union":
        return _decode_union(_args(kind), value, path, reasons)
    if shape == "tuple":
        return _decode_tuple(kind, value, path, reasons)
    if shape == "record":
        return _decode_record(kind, value, path, reasons)
    if shape == "enum":
        try:
            return kind(value)
        except ValueError:
            raise _wrong(path, "one of " + ", ".join(str(m.value) for m in kind), value) from None
    return _decode_scalar(kind, value, path)


@functools.cache
def _shape(kind: Any) -> str:
    """Return what is to be done for a kind; node 0 of a thousand decodes each fact of each of them."""
    origin = get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return "union"
    if origin is tuple:
        return "tuple"
    if dataclasses.is_dataclass(kind):
        return "record"
    return "enum" if isinstance(kind, type) and issubclass(kind, Enum) else "scalar"


_args = functools.cache(get_args)


def _decode_union(kinds: tuple[Any, ...], value: object, path: str, reasons: dict[str, str]) -> object:
    if value is None and Gap in kinds:
        return Gap(reasons.get(path, "not recorded"))
    errors = []
    for kind in kinds:
        if kind is Gap:
            continue
        try:
            return _decode(kind, value, path, reasons)
        except MalformedInput as error:
            errors.append(error)
    raise errors[0]


def _decode_tuple(kind: Any, value: object, path: str, reasons: dict[str, str]) -> object:
    if _is_pairs(kind):
        key_kind, item_kind = _args(_args(kind)[0])
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        return tuple(
            (_decode_key(key_kind, key, path), _decode(item_kind, item, _join(path, str(key)), reasons))
            for key, item in value.items()
        )
    if not isinstance(value, list):
        raise _wrong(path, "an array", value)
    item_kind = _args(kind)[0]
    return tuple([_decode(item_kind, item, f"{path}[{i}]", reasons) for i, item in enumerate(value)])


def _decode_key(kind: Any, key: object, path: str) -> object:
    if kind is not int:
        return key
    try:
        return int(str(key))
    except ValueError:
        raise _wrong(path, "whole numbers as keys", key) from None


def _decode_record(kind: type, value: object, path: str, reasons: dict[str, str]) -> object:
    if not isinstance(value, dict):
        raise _wrong(path, "an object", value)
    if kind is NodeFacts:
        reasons = {_join(path, fact): reason for fact, reason in _gap_reasons(value).items()}
    known = {}
    for name, json, hint in _fields(kind):
        if json in value:
            known[name] = _decode(hint, value[json], _join(path, json), reasons)
        elif name in _defaults(kind):
            continue
        elif Gap in _args(hint):
            known[name] = Gap(OLDER)
        else:
            raise MalformedInput(f"{path or 'the document'}: the key {json!r} is missing")
    return kind(**known)


@functools.cache
def _defaults(kind: type) -> frozenset[str]:
    return frozenset(f.name for f in dataclasses.fields(kind) if f.default is not dataclasses.MISSING)


def _decode_scalar(kind: Any, value: object, path: str) -> object:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > 2**1000:
            raise _wrong(path, "a number", value)
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(path, {str: "text", int: "a whole number", float: "a number", bool: "true or false"}[kind], value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(path, "a finite number", value)
    return value


def _wrong(path: str, expected: str, seen: object) -> MalformedInput:
    try:
        shown = reprlib.repr(seen)  # short however large the value is
    except ValueError:  # Python refuses to print an integer of more than 4300 digits
        shown = f"a {type(seen).__name__} too long to print"
    return MalformedInput(f"{path or 'the document'}: expected {expected}, found {shown}")
