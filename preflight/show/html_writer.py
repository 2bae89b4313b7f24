"""Self-contained HTML pages from templates, without scripts or network access."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from preflight.model.facts import Gap
from preflight.model.units import rate_text, size_text
from preflight.show.text import clean, line

if TYPE_CHECKING:
    from jinja2 import Environment

STYLES = "report.css"
POLICY = "default-src 'none'; img-src data:; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"
QUOTED = re.compile("`([^`]+)`")


def html_page(template: str, **values: object) -> str:
    """Return the HTML page for the template file `template` and the values.

    Text from outside is escaped. The page allows only embedded images and its own styles.
    """
    css = _environment().get_template(STYLES).render()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    values |= {"css": Markup(css), "policy": Markup(POLICY.format(digest))}
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  a tenth of a second

    made = Environment(
        loader=PackageLoader("preflight.show", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_shown,
    )  # fmt: skip
    made.filters |= {"size": size_text, "rate": rate_text, "line": line, "prose": _prose, "figure": "{:.3g}".format}
    made.tests["gap"] = lambda value: isinstance(value, Gap)
    return made


def _prose(text: str) -> Markup:
    """Return text from outside as escaped HTML; parts between backticks become code elements."""
    return Markup(QUOTED.sub(r"<code>\1</code>", str(escape(line(text)))))


def _shown(value: object) -> object:
    """Return a value as a template prints it.

    Text from outside has no invisible characters; preflight's markup is unchanged.
    """
    return clean(value) if type(value) is str else value
