"""Convert records to JSON values and back.

A value that could not be read (Gap) becomes null, and its path and reason go to the array `gaps`.
"""
# A record becomes an object, a tuple becomes an array, and an enum becomes its value. Pairs (`tuple[tuple[K, V], ...]`)
# become an object. The `gaps` array belongs to the outermost record. A record with `gaps_of_its_own` also has a `gaps`
# array.

from __future__ import annotations

import math
import re
import reprlib
import typing
from typing import Any, TypeVar

from preflight.errors import MalformedInput
from preflight.model.gap import Gap
from preflight.model.shape import Form, fields_of, shape_of

T = TypeVar("T")

GAPS = "gaps"
MISSING = "the document does not say it"
VALUE = "value"
# Half a pair of UTF-16 is no character and can't be written; U+DC80 to U+DCFF stand for bytes that are no UTF-8.
LARGEST = 1 << 64  # RLIM_INFINITY is the largest that a node has
LONE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
PLAIN = frozenset({int, float, str, bool})  # JSON has the same; most of what a report of thousands of ranks holds


def encode(record: object) -> dict[str, Any]:
    """Return the JSON object of a record, with its `gaps` array."""
    gaps: list[dict[str, str]] = []
    encoded = _encode(record, "", gaps)
    if not isinstance(encoded, dict):
        raise TypeError(f"only records can be encoded, not {type(record).__name__}")
    encoded[GAPS] = gaps
    return encoded


def decode(kind: type[T], value: object) -> T:
    """Return the record of type `kind` in the JSON object `value`.

    Unknown keys are ignored. Raise MalformedInput with the first wrong path.
    """
    # If a key is missing, its field gets the default. Without a default, the field becomes a Gap if its type allows a
    # Gap.
    return typing.cast(T, _decode(kind, value, "", _gap_reasons(value)))


def encode_value(value: object) -> dict[str, Any]:
    """Return a JSON object with one value: a record, a tuple of records, a scalar or a Gap."""
    gaps: list[dict[str, str]] = []
    return {VALUE: _encode(value, VALUE, gaps), GAPS: gaps}


def decode_value(kind: Any, document: object) -> Any:
    """Return the value of type `kind` that `encode_value` wrote as `document`.

    Raise MalformedInput if there is no such value.
    """
    if not isinstance(document, dict) or VALUE not in document:
        raise _wrong("", f"an object with the key {VALUE!r}", document)
    return _decode(kind, document[VALUE], VALUE, _gap_reasons(document))


def _encode(value: Any, path: str, gaps: list[dict[str, str]]) -> Any:
    if isinstance(value, Gap):
        gaps.append({"fact": path, "reason": value.reason})
        return None
    if isinstance(value, tuple):
        return [_encode(item, f"{path}[{i}]", gaps) for i, item in enumerate(value)]
    kind: Any = type(value)
    form = shape_of(kind).form
    if form is Form.RECORD:
        return _encode_record(value, path, gaps)
    return value.value if form is Form.ENUM else value.text if form is Form.TEXT else value


def _encode_record(record: Any, path: str, gaps: list[dict[str, str]]) -> dict[str, Any]:
    own: list[dict[str, str]] = []
    has_own = getattr(record, "gaps_of_its_own", False)
    start = "" if has_own else path
    encoded: dict[str, Any] = {}
    record_kind: Any = type(record)
    for name, json, kind, _ in fields_of(record_kind):
        item = getattr(record, name)
        if shape_of(kind).form is Form.PAIRS:
            encoded[json] = {str(key): each for key, each in item}
        else:
            encoded[json] = item if type(item) in PLAIN else _encode(item, _join(start, json), own)
    if has_own:
        encoded[GAPS] = own
        own = [{"fact": _join(path, gap["fact"]), "reason": gap["reason"]} for gap in own]
    gaps.extend(own)
    return encoded


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _gap_reasons(value: object) -> dict[str, str]:
    listed = value.get(GAPS) if isinstance(value, dict) else None
    if not isinstance(listed, list):
        return {}
    pairs = [(gap.get("fact"), gap.get("reason")) for gap in listed if isinstance(gap, dict)]
    return {fact: reason for fact, reason in pairs if isinstance(fact, str) and isinstance(reason, str)}


def _decode(kind: Any, value: object, path: str, reasons: dict[str, str]) -> object:
    form, parts = shape_of(kind)
    if form is Form.UNION:
        return _decode_union(parts, value, path, reasons)
    if form in (Form.ARRAY, Form.PAIRS):
        return _decode_tuple(form, parts, value, path, reasons)
    if form is Form.RECORD:
        return _decode_record(kind, value, path, reasons)
    if form is Form.TEXT:
        return kind.from_text(_decode_scalar(str, value, path))
    if form is Form.SCALAR:
        return _decode_scalar(kind, value, path)
    try:
        return kind(value)
    except ValueError:
        raise _wrong(path, "one of " + ", ".join(str(member.value) for member in kind), value) from None


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


def _decode_tuple(form: Form, kinds: tuple[Any, ...], value: object, path: str, reasons: dict[str, str]) -> object:
    if form is Form.ARRAY:
        if not isinstance(value, list):
            raise _wrong(path, "an array", value)
        return tuple([_decode(kinds[0], item, f"{path}[{i}]", reasons) for i, item in enumerate(value)])
    if not isinstance(value, dict):
        raise _wrong(path, "an object", value)
    found = []
    for key, item in value.items():
        try:
            own = int(str(key)) if kinds[0] is int else key
        except ValueError:
            raise _wrong(path, "whole numbers as keys", key) from None
        found.append((own, _decode(kinds[1], item, _join(path, str(key)), reasons)))
    return tuple(found)


def _decode_record(kind: type, value: object, path: str, reasons: dict[str, str]) -> object:
    if not isinstance(value, dict):
        raise _wrong(path, "an object", value)
    if getattr(kind, "gaps_of_its_own", False):
        reasons = {_join(path, fact): reason for fact, reason in _gap_reasons(value).items()}
    known = {}
    for name, json, hint, has_default in fields_of(kind):
        if json in value:
            known[name] = _decode(hint, value[json], _join(path, json), reasons)
        elif has_default:
            continue
        elif Gap in shape_of(hint).parts:
            known[name] = Gap(MISSING)
        else:
            raise MalformedInput(f"{_shown(path)}: the key {json!r} is missing")
    return kind(**known)


def _decode_scalar(kind: Any, value: object, path: str) -> object:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > 2**1000:
            raise _wrong(path, "a number", value)
        return float(value)
    if isinstance(value, str) and kind is str:
        return value if value.isascii() else LONE.sub("\ufffd", value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(path, {str: "text", int: "a whole number", float: "a number", bool: "true or false"}[kind], value)
    if kind is int and isinstance(value, int) and abs(value) > LARGEST:
        raise _wrong(path, "a whole number of at most 64 bits", value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(path, "a finite number", value)
    return value


def _wrong(path: str, expected: str, value: object) -> MalformedInput:
    try:
        shown = reprlib.repr(value)  # short however large the value is
    except ValueError:  # Python refuses to print an integer of more than 4300 digits
        shown = f"a {type(value).__name__} too long to print"
    return MalformedInput(f"{_shown(path)}: expected {expected}, found {shown}")


def _shown(path: str) -> str:
    """Return a JSON path escaped for a one-line message.

    The keys in the path come from the file and may hold any character.
    """
    return "the document" if not path else path if path.isprintable() else repr(path)
