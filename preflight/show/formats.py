"""The formats of a report, by their names on the command line."""

from __future__ import annotations

from enum import Enum


class Format(Enum):
    """A format of a report; its value is its name on the command line.

    `function` is the function in this folder that renders it. `suffix` is the file suffix that selects it. `own_option`
    is an option of its own that writes it. `suffix` and `own_option` are "" if the format has none.
    """

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
        """Create a format whose value is its name."""
        form = object.__new__(cls)
        form._value_, form.function, form.suffix, form.own_option = name, function, suffix, own_option
        return form


ALSO = tuple(form for form in Format if not form.own_option)  # what --also takes


def of_suffix(path: str) -> Format:
    """Return the format that the suffix of a file name selects; CONSOLE (the text page) for any other name."""
    _, dot, suffix = path.rpartition(".")
    return next((form for form in Format if dot and form.suffix == suffix.lower()), Format.CONSOLE)
