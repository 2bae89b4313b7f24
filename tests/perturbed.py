"""Every single change of a record: what a value could also have been, one value at a time."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

from preflight.model.gap import Gap

UNREAD = Gap("unread")


def perturbed(record: Any) -> Iterator[tuple[str, Any]]:
    """Yield the record with one value changed, and which: `.gpus[9].pcie.width: 16 -> 8`.

    Of several records of one kind the last is changed. A value becomes unreadable where its type allows that.
    """
    for field in fields(record):
        for where, new in _others(getattr(record, field.name), _hints(type(record))[field.name]):
            yield f".{field.name}{where}", replace(record, **{field.name: new})


def _others(value: Any, hint: Any) -> Iterator[tuple[str, Any]]:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if is_dataclass(value) and not isinstance(value, Gap):
        yield from perturbed(value)
    elif isinstance(value, tuple) and value:
        parts = next((typing.get_args(kind) for kind in kinds if typing.get_origin(kind) is tuple), (Any, ...))
        is_list, last = parts[-1] is ..., len(value) - 1
        for index in [last] if is_list else range(len(value)):
            for where, new in _others(value[index], parts[0 if is_list else index]):
                yield f"[{index}]{where}", (*value[:index], new, *value[index + 1 :])
        if is_list:
            yield ": none of them", ()
        if is_list and last:
            yield ": without the last", value[:-1]
    else:
        for new in _instead_of(value):
            yield f": {_text(value)} -> {_text(new)}", new
    if Gap in kinds and not isinstance(value, Gap):
        yield ": unread", UNREAD


def _instead_of(value: Any) -> list[Any]:
    if isinstance(value, Enum):
        return [each for each in type(value) if each is not value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return sorted({0, value - 1, value + 1, value // 2, 2 * value} - {value, -1})
    if isinstance(value, float):
        return [value / 2, value * 0.96, value * 1.04, value * 2] if value else [1.0]
    return ["", "other"] if isinstance(value, str) and value else ["other"] if value == "" else []


def _text(value: Any) -> str:
    return (
        value.name.lower() if isinstance(value, Enum) else f"{value:.4g}" if isinstance(value, float) else repr(value)
    )


_hints: Callable[[type], dict[str, Any]] = cache(typing.get_type_hints)


def table(record: Any, lines_of: Callable[[Any], Sequence[str]], without: str = r"(?!)") -> str:
    """Return what each change of the record changes in the lines that it leads to: `+` new lines, `-` lost ones.

    Changes that match `without` are left out, because they contradict another value.
    """
    before = lines_of(record)
    out = [f"{len(before)} lines without a change", *(f"  = {line}" for line in before)]
    for where, new in perturbed(record):
        after = before if re.search(without, where) else lines_of(new)
        if after != before:
            out += [where, *(f"  - {line}" for line in before if line not in after)]
            out += [f"  + {line}" for line in after if line not in before]
    return "\n".join([*out, ""])
