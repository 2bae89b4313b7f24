"""A fact that could not be read. A record of facts may hold it in the place of a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from preflight.errors import UnreadableFact

T = TypeVar("T")
D = TypeVar("D")
# How the reason begins where the GPU or the driver has no such thing: there is nothing to be known. preflight's
# arguments are fixed, so a driver that calls one invalid does not know what it asks for.
NOT_OFFERED = ("NVMLError_NotSupported", "NVMLError_InvalidArgument", "NVMLError_FunctionNotFound", "AttributeError")
NO_RIGHTS = "NVMLError_NoPermission"
NO_ANSWER = "no answer within"  # how the reason begins where something stalled, which a healthy machine does not


@dataclass(frozen=True, slots=True)
class Gap:
    """A fact that could not be read. In JSON the value is null and `gaps[]` names its path and reason."""

    reason: str

    def __bool__(self) -> bool:
        """Return False: nothing is known."""
        return False

    if not TYPE_CHECKING:  # a type checker refuses these uses, and says where

        def __iter__(self):
            """Say why there is nothing to go through."""
            raise UnreadableFact(f"this value is missing: {self.reason}")

        def __len__(self):
            """Say why there is nothing to count."""
            return self.__iter__()

        def __getitem__(self, _):
            """Say why there is nothing to take."""
            return self.__iter__()


def known(value: T | Gap) -> T:
    """Return the value; raise UnreadableFact with the gap's reason if the value is a Gap."""
    if isinstance(value, Gap):
        raise UnreadableFact(value.reason)
    return value


def known_or(value: T | Gap, default: D) -> T | D:
    """Return the value, or `default` if the value is a Gap."""
    return default if isinstance(value, Gap) else value


def or_none(value: T | Gap) -> T | None:
    """Return the value, or None if the value is a Gap."""
    return None if isinstance(value, Gap) else value
