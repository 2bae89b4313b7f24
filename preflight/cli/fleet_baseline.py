"""`preflight fleet` and `preflight baseline`: compare many reports, and record the speeds of known-good nodes."""

from __future__ import annotations

import os

import typer

from preflight.cli import commands
from preflight.cli.extras import must_have_html
from preflight.cli.output import STDOUT, check_outputs, detail_of, print_result, refuse_stdout, style
from preflight.errors import UsageError
from preflight.fleet.known_good import learn_from
from preflight.fleet.overview import overview
from preflight.model.fleet import Fleet
from preflight.show.baseline import baseline_page
from preflight.show.fleet import (
    failing_hosts,
    fleet_page,
    odd_hosts,
    odd_reasons,
    render_host_list,
    state_reasons,
)
from preflight.show.json_document import render_json
from preflight.system.files import write_atomically
from preflight.system.inputs import read_reports, report_paths

PASSING, FAILING, ODD, UNKNOWN = "passing_nodes.txt", "failing_nodes.txt", "odd_nodes.txt", "unknown_nodes.txt"
WOULD_DRAIN = "would_drain_nodes.txt"


def fleet(asked: commands.FleetOptions) -> None:
    """Run `preflight fleet`: compare the reports, print the result, and exit with the result's exit code.

    With `--out`, also write an HTML page and lists of hosts.
    """
    out = asked.out
    if out is not None:
        must_have_html(f"--out {out}")
        _make_dir(out)
    check_outputs(asked.json)
    compared = overview(read_reports(report_paths(asked.reports)))
    written = [] if out is None else _write(compared, out)
    written += [asked.json] if asked.json not in (None, STDOUT) else []
    page = fleet_page(compared, out or "", written)
    detail = detail_of(asked.verbose, asked.quiet)
    print_result(asked.json, lambda: render_json(compared), lambda: page.shown(detail, style()))
    raise typer.Exit(compared.exit_code)


def _write(compared: Fleet, out: str) -> list[str]:
    """Write the HTML page and the lists of hosts; return the page's path and a pattern for the lists."""
    for name, text in _host_lists(compared).items():
        write_atomically(os.path.join(out, name), text)
    from preflight.show.fleet_html import render_fleet_html  # noqa: PLC0415  what it needs may be missing

    page = os.path.join(out, commands.FLEET_PAGE)
    write_atomically(page, render_fleet_html(compared))
    return [page, os.path.join(out, "*_nodes.txt")]


def _make_dir(path: str) -> None:
    refuse_stdout("--out", path)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        why = "not a directory" if isinstance(error, FileExistsError) else str(error.strerror).lower()
        raise UsageError(f"--out {path}: {why}") from None


def _host_lists(compared: Fleet) -> dict[str, str]:
    """Return {file name: text} for the lists of hosts.

    In every list except the list of passing hosts, a reason follows each host.
    """
    states = {UNKNOWN: compared.unknown, WOULD_DRAIN: compared.would_drain}
    lists = {name: render_host_list([each.host for each in of], state_reasons(of)) for name, of in states.items()}
    lists[PASSING] = render_host_list(compared.passing)
    lists[FAILING] = render_host_list(failing_hosts(compared), state_reasons(compared.failing))
    lists[ODD] = render_host_list(sorted(odd_hosts(compared)), odd_reasons(compared))
    return lists


def baseline(asked: commands.BaselineOptions) -> None:
    """Run `preflight baseline`: compute a baseline from the reports, write the baseline, and print a summary."""
    output = asked.output
    check_outputs(output)
    learnt = learn_from(read_reports(report_paths(asked.reports)))
    page, detail = baseline_page(learnt, output), detail_of(asked.verbose, asked.quiet)
    print_result(output, lambda: render_json(learnt.baseline), lambda: page.shown(detail, style()))
