"""Every format of a report, by its name on the command line."""

from __future__ import annotations

from enum import Enum


class Format(Enum):
    """A format: its name, the function in this folder that renders it, and the other option that writes it, if any."""

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

SUFFIXES = {".html": Format.HTML, ".md": Format.MARKDOWN, ".json": Format.JSON, ".xml": Format.JUNIT,
            ".prom": Format.PROMETHEUS, ".env": Format.ENV}  # fmt: skip


def of_suffix(path: str) -> Format:
    """Return the format that a file's name asks for; the console's page if the name asks for none."""
    return SUFFIXES.get(f".{path.rpartition('.')[2].lower()}", Format.CONSOLE)
