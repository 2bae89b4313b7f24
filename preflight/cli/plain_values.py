"""Accept simple command-line values without typer's converter.

The converter loads pydantic, which takes 0.1 s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True, slots=True)
class PlainFirst:
    """A converter that accepts simple values, and passes other values to typer's converter."""

    kind: Any
    parser: Callable[[str], Any] | None
    of_typer: Callable[[], Any]  # returns typer's converter; calling it loads pydantic

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return `value` in the type that the command expects.

        `value` was given for the parameter `param`.
        """
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self.kind == list[str] and isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
            return list(value)
        if type(value) is self.kind:
            return value
        if self.parser is not None:
            return self.parser(value)
        return self.of_typer().coerce(value, param=param, ctx=ctx)


def take_plain_values(params: Iterable[Any]) -> None:
    """Make typer's parameters accept simple values without loading pydantic.

    A simple value needs no conversion.
    """
    for param in params:
        with contextlib.suppress(AttributeError):  # a typer with other insides, or without pydantic, does it by itself
            kind = param.type_descriptor
            plain = PlainFirst(kind.annotation, kind.parameter_info.parser, param.get_runtime_param)
            param.get_runtime_param = partial(_same, plain)


def _same(plain: PlainFirst) -> PlainFirst:
    return plain
