"""The report as a person reads it: the verdict first, then what to do, then what it rests on."""

from __future__ import annotations

from preflight.model.advice import Advice
from preflight.model.codec import GAPS, encode
from preflight.model.facts import Gap
from preflight.model.finding import SkippedCheck
from preflight.model.gap import NO_ANSWER
from preflight.model.report import Report, Verdict
from preflight.render.between import between_sections
from preflight.render.env_file import shell_quote
from preflight.render.findings import findings_section, skip_reason
from preflight.render.hardware import hardware_section
from preflight.render.isolation import isolation_section
from preflight.render.rails import rails_section
from preflight.render.reasons import unfinished
from preflight.render.search import search_section
from preflight.render.speeds import speeds_section
from preflight.render.text import INDENT, Style, clean, finish, heading, paint, pairs, width_of, wrap
from preflight.render.transport import transport_section
from preflight.render.trials import comparisons_section, left_out_section, trials_section

WORDS = {
    Verdict.READY: ("READY", "green"),
    Verdict.READY_WITH_ENV: ("READY WITH SETTINGS", "green"),
    Verdict.NOT_READY: ("NOT READY", "red"),
    Verdict.UNKNOWN: ("UNKNOWN", "yellow"),
}
GAPS_SHOWN = 3


def render_check(report: Report, style: Style, env_path: str = "preflight.env") -> str:
    """Return the page of `preflight check`; no line is wider than the style's width, whatever the report holds."""
    lines = [
        *_preamble(report, style),
        *_verdict(report, style),
        *launch_section(report, style),
        *problems_section(report.problems, style),
        *_unfinished(report, style),
        *findings_section(report.findings, style),
        *hardware_section(report, style),
        *between_sections(report, style),
        *trials_section(report, style),
        *speeds_section(report, style),
        *rails_section(report, style),
        *isolation_section(report, style),
        *search_section(report, style),
        *transport_section(report, style),
        *comparisons_section(report, style),
        *left_out_section(report, style),
        *_recommendation(report, style, env_path),
        *_unseen(report, style),
        *_durations(report, style),
    ]
    return finish(lines, style)


def problems_section(problems: tuple[str, ...], style: Style) -> list[str]:
    """Return what preflight itself could not do."""
    if not problems:
        return []
    lines = [line for problem in problems for line in wrap(clean(problem), style.width, INDENT, INDENT * 2)]
    return [*heading("Preflight itself", style), *lines]


def _unfinished(report: Report, style: Style) -> list[str]:
    """Return which parts of the run are missing."""
    parts = [(each.name, f"{each.end.value.replace('_', ' ')}: {each.detail}") for each in unfinished(report)]
    told = pairs([(clean(name), clean(detail)) for name, detail in parts], style.width)
    return [*heading("Not finished", style), *told] if told else []


def _preamble(report: Report, style: Style) -> list[str]:
    lines = []
    if report.simulated:
        text = f"SIMULATED: a stand-in backend ({report.backend}) or another machine's facts; no verdict on this one."
        lines += wrap(clean(text), style.width)
    if report.backend == "gloo":
        ranks = f"{report.world_size} rank{'' if report.world_size == 1 else 's'}"
        nodes = f" of {len(report.nodes)} nodes" if len(report.nodes) > 1 else ""
        text = f"CPU path: gloo over {ranks}{nodes}; no GPU and no NCCL was tried."
        lines += wrap(text, style.width)
    return lines


def launch_section(report: Report, style: Style) -> list[str]:
    """Return where this node stands among several, and who said so."""
    if not report.launch:
        return []
    items = [(clean(each.what), clean(f"{each.value} ({each.source})")) for each in report.launch]
    return [*heading("Several nodes", style), *pairs(items, style.width)]


def _verdict(report: Report, style: Style) -> list[str]:
    word, colour = WORDS[report.verdict]
    told = report.headline.removeprefix(f"{word.lower()}: ")
    first, *others = wrap(clean(told), style.width, word + INDENT, INDENT)
    lines = [first.replace(word, paint(word, colour, style), 1), *others]
    if not isinstance(report.node_verdict, Gap):
        lines.append(f"Node: {report.node_verdict.value}")
    return lines


def _recommendation(report: Report, style: Style, env_path: str) -> list[str]:
    advice = report.advice
    settings = [(f"export {name}={shell_quote(value)}", name) for name, value in advice.env]
    settings += [(f"unset {name}", name) for name in advice.unset]
    ready = report.verdict in (Verdict.READY, Verdict.READY_WITH_ENV)
    reason = f"Set nothing: {advice.reason}" if ready and not settings else advice.reason
    lines = heading("Recommendation", style) + wrap(clean(reason[:1].upper() + reason[1:]), style.width, INDENT)
    lines += _settings(advice, settings, style)
    lines += _safe_timeout(advice, style)
    if advice.one_node_only:
        lines += wrap("Network settings act on one-node jobs only: they were learnt on one node.", style.width, INDENT)
    if settings and ready:
        lines += wrap(clean(f"source {shell_quote_path(env_path)}"), style.width, f"{INDENT}Next: ", INDENT * 4)
    return lines


def _settings(advice: Advice, settings: list[tuple[str, str]], style: Style) -> list[str]:
    """Return the commands, each with what is said of it alone; what is said of all alike stands once, below."""
    each = [_evidence(advice, name) for _, name in settings]
    shared = [told for told in each[0] if all(told in others for others in each[1:])] if len(each) > 1 else []
    lines = []
    for (command, _), evidence in zip(settings, each, strict=True):
        lines += wrap(clean(command), style.width, INDENT * 2, INDENT * 3)
        hanging = INDENT * (4 if len(evidence) > 1 else 3)
        own = [told for told in evidence if told not in shared]
        lines += [line for told in own for line in wrap(told, style.width, INDENT * 3, hanging)]
    if any(len(evidence) > len(shared) for evidence in each) and shared:
        lines += wrap("all of them", style.width, INDENT * 2)
    hanging = INDENT * (4 if len(shared) > 1 else 3)
    return lines + [line for told in shared for line in wrap(told, style.width, INDENT * 3, hanging)]


def _evidence(advice: Advice, name: str) -> tuple[str, ...]:
    told = [text for about, text in advice.evidence if about == name]
    return tuple(clean(line) for text in told for line in text.splitlines())


def _safe_timeout(advice: Advice, style: Style) -> list[str]:
    if isinstance(advice.pg_timeout_s, Gap) or isinstance(advice.init_timeout_s, Gap):
        return []
    told = f"{advice.pg_timeout_s} s for collectives, {advice.init_timeout_s} s for the start: {advice.timeout_reason}"
    more = "`preflight timeout --report` knows the job too: its size, its saves, its storage."
    return wrap(clean(f"{told}. {more}"), style.width, f"{INDENT}Safe timeout: ", INDENT * 2)


def shell_quote_path(path: str) -> str:
    """Return the path as one types it: bare where it is plain."""
    plain = path and all(char.isalnum() or char in "._-/+,@:" for char in path) and path.isascii()
    return path if plain else shell_quote(path)


def _unseen(report: Report, style: Style) -> list[str]:
    """Return what could not be looked at: checks with their reason, and the most telling gaps."""
    items = _skipped(report.skipped_checks)
    gaps = [(gap["fact"], clean(gap["reason"])) for node in report.nodes for gap in encode(node)[GAPS]]
    told = dict.fromkeys(gap for gap in gaps if not _is_ordinary(gap[0], report.backend))
    telling = sorted(told, key=lambda gap: not gap[1].startswith(NO_ANSWER))[:GAPS_SHOWN]  # first what stalled
    lines = pairs([*items, *telling], style.width)
    if len(gaps) > len(telling):
        more = f"{len(gaps) - len(telling)} {'more ' if telling else ''}facts could not be read"
        lines += wrap(f"{more}; `preflight probe` names them", style.width, INDENT)
    return [*heading("Could not look", style), *lines] if lines else []


def _skipped(skipped: tuple[SkippedCheck, ...]) -> list[tuple[str, str]]:
    """Return name and reason of each check that could not look; those with one reason share an entry."""
    by_reason: dict[str, list[str]] = {}
    for each in skipped:
        by_reason.setdefault(clean(skip_reason(each)), []).append(clean(each.check))
    return [
        (names[0], reason if len(names) == 1 else f"{reason} (and so {', '.join(names[1:])})")
        for reason, names in by_reason.items()
    ]


def _is_ordinary(fact: str, backend: str) -> bool:
    """Tell whether healthy machines lack this fact too: virtual interfaces have no speed, CPU machines no driver."""
    about_gpus = fact.startswith(("driver", "gpu", "device_nodes", "nvidia_pci", "software.torch.", "rdma.", "xid"))
    return (about_gpus and backend == "gloo") or fact.startswith(("netifs[", "gpus[", "pci[", "nics[", "hca_ports["))


def _durations(report: Report, style: Style) -> list[str]:
    if not report.durations_s:
        return []
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.durations_s)
    lines = wrap(clean(parts), style.width, "Took: ", " " * width_of("Took: "))
    return ["", *(paint(line, "dim", style) for line in lines)]
