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
    """A form: what one types, the function of this folder that renders it, and the option that writes it anyway."""

    function: str
    own_option: str

    CONSOLE = "console", "check_page.render_check"
    ENV = "env", "env_file.render_env", "--env-out"
    JSON = "json", "json_document.render_json", "--report"
    JUNIT = "junit", "junit.render_junit"
    HTML = "html", "html_report.render_html"
    MARKDOWN = "markdown", "markdown_writer.render_markdown"
    PROMETHEUS = "prometheus", "prometheus.render_prometheus"
    NAGIOS = "nagios", "drain_nagios_k8s.render_nagios"
    DRAIN = "drain", "drain_nagios_k8s.render_drain"
    K8S = "k8s", "drain_nagios_k8s.render_k8s"

    def __new__(cls, name: str, function: str, own_option: str = "") -> Format:
        """Make a form whose value is its name."""
        form = object.__new__(cls)
        form._value_, form.function, form.own_option = name, function, own_option
        return form


ALSO = tuple(form for form in Format if not form.own_option)  # what --also takes


def render_as(form: Format, report: Report, style: Style | None = None) -> str:
    """Return the report in this form; UsageError for the `.env` of a report that earned none."""
    if form is Format.ENV and report.exit_code != 0:
        why = f"its exit code was {report.exit_code} ({report.verdict.value})"
        raise UsageError(f"the report holds no .env to source: {why}, and only exit 0 earns one")
    module, name = form.function.split(".")
    # A form is imported when it is wanted: plots and templates must not slow the others.
    render: Callable[..., str] = getattr(import_module(f"preflight.render.{module}"), name)
    return render(report, style or Style(width=100)) if form is Format.CONSOLE else render(report)
