"""The JSON form (null, scalar, object, array, ...) of each type in our records, for `codec` and `schema`."""

from __future__ import annotations

import functools
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum, auto
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from preflight.model.gap import Gap


class Form(Enum):
    """The form of a value in JSON, such as object, array or null."""

    GAP = auto()  # null
    SCALAR = auto()
    ENUM = auto()  # its value
    TEXT = auto()  # a record's text, where it has `text` and `from_text`
    RECORD = auto()  # an object
    ARRAY = auto()
    PAIRS = auto()  # an object: tuple[tuple[K, V], ...]
    UNION = auto()


class Shape(NamedTuple):
    """The JSON form of a type, and the types inside it, such as the type of an array's items."""

    form: Form
    parts: tuple[Any, ...] = ()


class Field(NamedTuple):
    """A field of a record. `json` is the key of the field in JSON."""

    name: str
    json: str
    kind: Any
    has_default: bool


@functools.cache
def shape_of(kind: Any) -> Shape:
    """Return the JSON form of the type `kind` and the types inside it."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return Shape(Form.UNION, parts)
    if origin is tuple:
        pair = get_args(parts[0]) if get_origin(parts[0]) is tuple else (Ellipsis,)
        return Shape(Form.ARRAY, parts[:1]) if Ellipsis in pair else Shape(Form.PAIRS, pair)
    if kind is Gap:
        return Shape(Form.GAP)
    if is_dataclass(kind):
        return Shape(Form.TEXT if hasattr(kind, "from_text") else Form.RECORD)
    return Shape(Form.ENUM if isinstance(kind, type) and issubclass(kind, Enum) else Form.SCALAR)


@functools.cache
def fields_of(record: type) -> tuple[Field, ...]:
    """Return the fields of the record type `record`. `metadata={"json": ...}` gives a field another name in JSON."""
    kinds = get_type_hints(record)
    return tuple(
        Field(each.name, each.metadata.get("json", each.name), kinds[each.name], each.default is not MISSING)
        for each in fields(record)
    )
