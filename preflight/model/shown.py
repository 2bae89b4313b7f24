"""Show a result of the Python API as text in `print` and as HTML in a notebook."""
# The API registers the functions that build the text and the HTML in WRITERS. A record without registered functions
# prints its short form.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Renderers(NamedTuple):
    """The functions that display one kind of result."""

    page: Callable[[Any], str]  # as the command prints it
    html: Callable[[Any], str]  # a part of a page in a notebook
    json: Callable[[Any], str]  # as --json writes it


WRITERS: dict[type, Renderers] = {}


class Printable:
    """A result of the Python API that prints the same text as the matching command.

    A REPL shows only one sentence about the result.
    """

    __slots__ = ()

    @property
    def in_short(self) -> str:
        """Return the result in one sentence."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Return the record's type and the result in one sentence."""
        return f"<{type(self).__name__}: {self.in_short}>"

    def __str__(self) -> str:
        """Return the page that the command prints. If no page is registered, return the one-sentence form."""
        writers = WRITERS.get(type(self))
        return writers.page(self) if writers else repr(self)

    def _repr_html_(self) -> str | None:
        """Return the HTML that a notebook shows; None if no HTML is registered for this record."""
        writers = WRITERS.get(type(self))
        return writers.html(self) if writers else None

    def to_json(self) -> str:
        """Return the JSON document that the command writes with --json."""
        return WRITERS[type(self)].json(self)
