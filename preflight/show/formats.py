"""The report formats that the command line offers."""

from __future__ import annotations

from enum import Enum


class Format(Enum):
    """A report format. The value is the format's name on the command line."""

    # `function` renders the report. `suffix` is the file suffix that selects the format. `own_option` is the option
    # that writes only this format.

    function: str
    suffix: str
    own_option: str

    CONSOLE = "console", "check_page.render_check"
    ENV = "env", "env_file.render_env", "env", "--env-out"
    JSON = "json", "json_document.render_json", "json", "--report"
    JUNIT = "junit", "junit.render_junit", "xml"
    HTML = "html", "html_report.render_html", "html"
    MARKDOWN = "markdown", "markdown_writer.render_markdown", "md"
    PROMETHEUS = "prometheus", "prometheus.render_prometheus", "prom"
    NAGIOS = "nagios", "drain_nagios_k8s.render_nagios"
    DRAIN = "drain", "drain_nagios_k8s.render_drain"
    TICKET = "ticket", "ticket.render_ticket"
    K8S = "k8s", "drain_nagios_k8s.render_k8s"

    def __new__(cls, name: str, function: str, suffix: str = "", own_option: str = "") -> Format:
        """Create a format that has the value `name`."""
        form = object.__new__(cls)
        form._value_, form.function, form.suffix, form.own_option = name, function, suffix, own_option
        return form


ALSO = tuple(form for form in Format if not form.own_option)  # what --also takes


def of_suffix(path: str) -> Format:
    """Return the report format that matches the suffix of a file name.

    Other suffixes give CONSOLE, the text page.
    """
    _, dot, suffix = path.rpartition(".")
    return next((form for form in Format if dot and form.suffix == suffix.lower()), Format.CONSOLE)
