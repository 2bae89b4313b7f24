"""The page of `preflight check`: the verdict first, then what to do, then what it rests on."""

from __future__ import annotations

from preflight.model.codec import GAPS, encode
from preflight.model.gap import NO_ANSWER
from preflight.model.report import Report
from preflight.show.checks_and_findings import could_not_look, counts_line, findings_section, silent_sections
from preflight.show.console_writer import page
from preflight.show.document import BLANK, Block, Items, Text, item, note, section
from preflight.show.gpu_tests import hardware_section
from preflight.show.isolation import isolation_section
from preflight.show.network_survey import between_sections
from preflight.show.settings import recommendation_section
from preflight.show.speeds import rails_section, speeds_section
from preflight.show.text import Style
from preflight.show.transport import transport_section
from preflight.show.trials import comparisons_section, left_out_section, search_section, trials_section
from preflight.show.verdict import unfinished_section, verdict_section

GAPS_SHOWN = 3


def render_check(report: Report, style: Style, env_path: str = "preflight.env") -> str:
    """Return the page of `preflight check`; no line is wider than the style's width, whatever the report holds."""
    launch = Items([(each.what, f"{each.value} ({each.source})") for each in report.launch])
    blocks: list[Block] = [
        *verdict_section(report),
        *section("Several nodes", launch),
        *section("Preflight itself", *map(item, report.problems)),
        *unfinished_section(report),
        *findings_section(report.findings),
        *hardware_section(report),
        *between_sections(report),
        *trials_section(report),
        *speeds_section(report),
        *rails_section(report),
        *isolation_section(report),
        *search_section(report),
        *transport_section(report),
        *comparisons_section(report),
        *left_out_section(report),
        *recommendation_section(report, env_path),
        *_could_not_look(report),
        *silent_sections(report.checks),
        *counts_line(report.checks, report.findings),
        *_durations(report),
    ]
    return page(blocks, style)


def _could_not_look(report: Report) -> list[Block]:
    """Return what could not be looked at: checks with their reason, and the most telling gaps."""
    items = [
        (names[0], reason if len(names) == 1 else f"{reason} (and so {', '.join(names[1:])})")
        for reason, names in could_not_look(report.skipped_checks).items()
    ]
    gaps = [(gap["fact"], gap["reason"]) for node in report.nodes for gap in encode(node)[GAPS]]
    unusual = dict.fromkeys(gap for gap in gaps if not _is_ordinary(gap[0], report.backend))
    telling = sorted(unusual, key=lambda gap: not gap[1].startswith(NO_ANSWER))[:GAPS_SHOWN]  # first what stalled
    more = f"{len(gaps) - len(telling)} {'more ' if telling else ''}facts could not be read"
    notes = [note(f"{more}; `preflight probe` names them")] if len(gaps) > len(telling) else []
    return section("Could not look", Items([*items, *telling]), *notes)


def _is_ordinary(fact: str, backend: str) -> bool:
    """Tell whether healthy machines lack this fact too: virtual interfaces have no speed, CPU machines no driver."""
    about_gpus = fact.startswith(("driver", "gpu", "device_nodes", "nvidia_pci", "software.torch.", "rdma.", "xid"))
    return (about_gpus and backend == "gloo") or fact.startswith(
        ("netifs[", "gpus[", "pci[", "nics[", "hca_ports[", "other_devices")
    )


def _durations(report: Report) -> list[Block]:
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.durations_s)
    return [BLANK, Text(parts, hang=len("Took: "), label="Took: ", tone="dim")] if parts else []
