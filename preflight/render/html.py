"""One page that needs nothing else: no network, no script; readable on a phone, in the dark, printed and aloud."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from preflight.model.facts import Gap
from preflight.model.finding import Finding, Severity
from preflight.model.report import Report
from preflight.model.units import rate_text, size_text
from preflight.render import html_chart, html_matrix, html_parts
from preflight.render.env_file import shell_quote
from preflight.render.k8s import rfc3339
from preflight.render.reasons import answer, hosts, is_bad, is_good, line, reasons, sentence, unfinished, waivers
from preflight.render.speeds import judge_text
from preflight.render.text import clean

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATE, STYLES = "report.html", "report.css"
POLICY = "default-src 'none'; img-src data:; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"
QUOTED = re.compile("`([^`]+)`")


def render_html(report: Report) -> str:
    """Return the page; every text from outside is escaped, and what is invisible in it is made visible."""
    from markupsafe import Markup  # noqa: PLC0415  not before a page is wanted

    charts = html_chart.charts(report)
    return environment().get_template(TEMPLATE).render(
        **styles(),
        report=report,
        tone="good" if is_good(report) else "bad" if is_bad(report) else "unknown",
        answer=answer(report).replace("_", " "),
        headline=_told(report),
        when=_when(report),
        hosts=hosts(report),
        reasons=_why(report),
        unfinished=unfinished(report),
        waivers=waivers(report),
        speed_judges=[judge_text(each) for each in report.judged_by],
        beside=html_parts.beside_baseline(report),
        findings=_by_severity(report.findings),
        settings=_settings(report),
        tried=html_parts.tried(report),
        comparisons=html_parts.comparisons(report),
        charts=[(chart, Markup(chart.svg)) for chart in charts],
        ranks=html_parts.rank_times(report),
        nodes=[_node(report, i) for i in range(len(report.nodes))],
        checked=[each for each in html_parts.checked(report) if each.end != "passed"],
        passed=[each for each in html_parts.checked(report) if each.end == "passed"],
        durations=html_parts.durations(report),
        expected=report.expected,
    )  # fmt: skip


def styles() -> dict[str, Markup]:
    """Return the styles, and the page's policy: beside images in the page it allows nothing but their digest."""
    from markupsafe import Markup  # noqa: PLC0415

    css = environment().get_template(STYLES).render()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return {"css": Markup(css), "policy": Markup(POLICY.format(digest))}


def _by_severity(findings: tuple[Finding, ...]) -> list[Finding]:
    order = list(Severity)
    return sorted(findings, key=lambda each: order.index(each.severity))


def _settings(report: Report) -> list[tuple[str, str]]:
    """Return the lines of the `.env` that do something, each with the evidence that earned it."""
    advice = report.advice
    if report.exit_code != 0:
        return []
    told = dict.fromkeys(name for name, _ in advice.evidence)
    evidence = {name: "; ".join(text for about, text in advice.evidence if about == name) for name in told}
    lines = [(f"export {name}={shell_quote(value)}", "the GPUs that were tried") for name, value in advice.gpu_env]
    lines += [(f"export {name}={shell_quote(value)}", evidence.get(name, "")) for name, value in advice.env]
    return lines + [(f"unset {name}", evidence.get(name, "")) for name in advice.unset if name not in dict(advice.env)]


def _node(report: Report, place: int) -> dict[str, Any]:
    node = report.nodes[place]
    return {
        "host": node.host,
        "paths": html_matrix.path_matrix(node),
        "p2p": html_matrix.p2p_matrix(report, node),
        "tables": html_parts.fact_tables(node),
        "items": html_parts.fact_items(node),
        "unread": html_parts.unread(node),
    }


@functools.cache
def environment() -> Environment:
    """Return jinja2 with our templates, in which every text from outside is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  a tenth of a second

    made = Environment(
        loader=PackageLoader("preflight.render", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_shown,
    )  # fmt: skip
    made.filters |= {"size": size_text, "rate": rate_text, "line": line, "prose": _prose}
    made.tests["gap"] = lambda value: isinstance(value, Gap)
    return made


def _told(report: Report) -> str:
    """Return the headline as a sentence, without the verdict that stands above it."""
    told = sentence(report)
    return told[:1].upper() + told[1:] if is_good(report) else told  # else it begins with a name


def _why(report: Report) -> tuple[str, ...]:
    """Return what decided, beyond what the headline says."""
    told = () if is_good(report) else reasons(report)
    return () if len(told) == 1 and told[0].partition(" [")[0] in sentence(report) else told


def _when(report: Report) -> str:
    at = rfc3339(report.created_at)
    return f"{datetime.fromisoformat(at.replace('Z', '+00:00')):%Y-%m-%d %H:%M} UTC" if at else line(report.created_at)


def _prose(text: str) -> Markup:
    """Return text from outside, escaped, in which `commands` stand in code elements."""
    from markupsafe import Markup, escape  # noqa: PLC0415

    return Markup(QUOTED.sub(r"<code>\1</code>", str(escape(line(text)))))


def _shown(value: object) -> object:
    """Return what a template prints: text from outside without anything invisible, our own markup as it is."""
    return clean(value) if type(value) is str else value
