"""Every form that a report can be rendered in, by the name that the command line uses."""

from __future__ import annotations

from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING

from preflight.errors import UsageError
from preflight.render.text import Style

if TYPE_CHECKING:
    from collections.abc import Callable

    from preflight.model.report import Report


class Format(Enum):
    """A form; the values are what one types."""

    CONSOLE = "console"
    ENV = "env"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    PROMETHEUS = "prometheus"
    NAGIOS = "nagios"
    DRAIN = "drain"
    K8S = "k8s"
    HTML = "html"


PLACES = {
    Format.CONSOLE: ("check_page", "render_check"),
    Format.ENV: ("env_file", "render_env"),
    Format.JSON: ("json_document", "render_json"),
    Format.JUNIT: ("junit", "render_junit"),
    Format.MARKDOWN: ("markdown_writer", "render_markdown"),
    Format.PROMETHEUS: ("prometheus", "render_prometheus"),
    Format.NAGIOS: ("drain_nagios_k8s", "render_nagios"),
    Format.DRAIN: ("drain_nagios_k8s", "render_drain"),
    Format.K8S: ("drain_nagios_k8s", "render_k8s"),
    Format.HTML: ("html_report", "render_html"),
}


def render_as(form: Format, report: Report, style: Style | None = None) -> str:
    """Return the report in this form; UsageError for the `.env` of a report that earned none."""
    if form is Format.ENV and report.exit_code != 0:
        why = f"its exit code was {report.exit_code} ({report.verdict.value})"
        raise UsageError(f"the report holds no .env to source: {why}, and only exit 0 earns one")
    module, name = PLACES[form]
    # A form is imported when it is wanted: plots and templates must not slow the others.
    render: Callable[..., str] = getattr(import_module(f"preflight.render.{module}"), name)
    return render(report, style or Style(width=100)) if form is Format.CONSOLE else render(report)
