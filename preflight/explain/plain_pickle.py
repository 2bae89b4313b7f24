"""Load plain values from a pickle without running code.

Classes, functions, custom objects and dictionary keys other than text are refused.
"""
# Number keys can have equal hashes, and would make each insertion slow.

from __future__ import annotations

import pickletools
from typing import Any

from preflight.errors import MalformedInput
from preflight.model.input_limits import RECORDING

LITERALS = frozenset((
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING",
    "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES",
))  # fmt: skip
TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
IGNORED = frozenset({"PROTO", "FRAME"})


def load_plain(source: str, data: bytes, most_operations: int = RECORDING.most_values) -> object:
    """Return the value in `data`, the pickle from the file `source`, without running code.

    Raise MalformedInput if the pickle is damaged or too large, or contains anything but plain values.
    """
    # A pickle with more than `most_operations` operations is refused, too.
    if len(data) > RECORDING.most_bytes:
        raise MalformedInput(f"{source}: {RECORDING.too_large()}")
    machine = _Machine(source)
    try:
        for count, (operation, argument, _) in enumerate(pickletools.genops(data), 1):
            if count > most_operations:
                raise MalformedInput(
                    f"{source}: refused: more than {most_operations} operations, which a dump of 2000 entries "
                    "(TORCH_FR_BUFFER_SIZE) does not need"
                )
            machine.take(operation.name, argument)
        return machine.result
    except MalformedInput:
        raise
    except Exception as error:  # noqa: BLE001  a hostile pickle can make pickletools raise anything
        raise MalformedInput(f"{source}: not a readable flight recorder dump: {type(error).__name__}") from None


class _Machine:
    """An interpreter of pickle operations, with a stack, limited to operations that build plain values."""

    def __init__(self, source: str) -> None:
        self.result: object = None
        self._source = source
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def take(self, name: str, argument: Any) -> None:
        """Execute one operation of the pickle.

        Raise IndexError or a similar error if the stack lacks an operand.
        """
        stack = self._stack
        if name in LITERALS:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name not in IGNORED:
            self._build(name, argument)

    def _build(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name == "EMPTY_LIST":
            stack.append([])
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "APPEND":
            self._extend([stack.pop()])
        elif name == "APPENDS":
            self._extend(self._above_mark())
        elif name == "SETITEM":
            self._update(self._above(2))
        elif name == "SETITEMS":
            self._update(self._above_mark())
        elif name == "TUPLE":
            stack.append(tuple(self._above_mark()))
        elif name in TUPLES:
            stack.append(tuple(self._above(TUPLES[name])))
        elif name == "STOP":
            self.result = stack.pop()
        else:
            raise MalformedInput(
                f"{self._source}: refused: a dump may contain plain values only, but this pickle asks for {name} "
                f"({str(argument)[:60]!r}), which can run code"
            )

    def _above(self, count: int) -> list[Any]:
        """Remove the `count` topmost values from the stack and return them."""
        at = len(self._stack) - count
        if at < (self._marks[-1] if self._marks else 0):
            raise IndexError(count)
        values = self._stack[at:]
        del self._stack[at:]
        return values

    def _above_mark(self) -> list[Any]:
        return self._above(len(self._stack) - self._marks.pop())

    def _extend(self, values: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise TypeError("append")
        self._stack[-1].extend(values)

    def _update(self, values: list[Any]) -> None:
        target = self._stack[-1]
        keys = values[::2]
        if not isinstance(target, dict) or len(values) % 2 or not all(type(key) is str for key in keys):
            raise MalformedInput(f"{self._source}: refused: the keys of a dump must be text")
        target.update(zip(keys, values[1::2], strict=True))
