"""A Gap is the value of a field that could not be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from preflight.errors import UnreadableFact

T = TypeVar("T")
D = TypeVar("D")
# Prefixes of a gap's reason if the GPU or the driver does not have what was asked for. preflight's arguments are fixed,
# so a driver that calls an argument invalid does not know it.
NOT_OFFERED = ("NVMLError_NotSupported", "NVMLError_InvalidArgument", "NVMLError_FunctionNotFound", "AttributeError")
NO_RIGHTS = "NVMLError_NoPermission"
NO_ANSWER = "no answer within"  # prefix of a gap's reason if a read stalled, which no healthy machine does


@dataclass(frozen=True, slots=True)
class Gap:
    """A value that could not be read, with the reason.

    In JSON, the value is null, and the `gaps` array has its path and its reason.
    """

    reason: str

    def __bool__(self) -> bool:
        """Return False, so that a missing value never counts as true."""
        return False

    if not TYPE_CHECKING:  # a type checker refuses these uses, and says where

        def __iter__(self):
            """Raise UnreadableFact with the gap's reason."""
            raise UnreadableFact(f"this value is missing: {self.reason}")

        def __len__(self):
            """Raise UnreadableFact with the gap's reason."""
            return self.__iter__()

        def __getitem__(self, _):
            """Raise UnreadableFact with the gap's reason."""
            return self.__iter__()


NOT_READ = Gap("not read")


def known(value: T | Gap) -> T:
    """Return `value`. Raise UnreadableFact with the reason if `value` is a Gap."""
    if isinstance(value, Gap):
        raise UnreadableFact(value.reason)
    return value


def known_or(value: T | Gap, default: D) -> T | D:
    """Return `value`, or `default` if `value` is a Gap."""
    return default if isinstance(value, Gap) else value


def or_none(value: T | Gap) -> T | None:
    """Return `value`, or None if `value` is a Gap."""
    return None if isinstance(value, Gap) else value
